"""regard index and regard find, with right and wrong input."""

import json
from pathlib import Path

import pytest

from regard.cli import main
from tiny import Command, refused, succeeded


@pytest.fixture
def index(regard: Command) -> str:
    succeeded(regard("index", "text.txt", "--out", "a.index"))
    return "a.index"


def test_an_index_is_described(regard: Command) -> None:
    outcome = succeeded(regard("index", "text.txt", "--out", "a.index"))
    assert "documents: 8 (files: 1)" in outcome.out
    assert outcome.new == ["a.index"]
    assert "Index: a.index" in succeeded(regard("index", "text.txt", "--out", "a.index")).out


def test_places_are_shown_with_their_lines(regard: Command, index: str) -> None:
    outcome = succeeded(regard("find", index, "Bell was"))
    assert outcome.out == "text.txt:3: Mia Bell was born in Rome.\n1 occurrence\n"
    several = succeeded(regard("find", index, "Rome", "--max-count", 2))
    assert several.out.splitlines()[1:] == [
        "text.txt:3: Mia Bell was born in Rome.",
        "4 occurrences",
    ]


def test_a_count_is_a_number(regard: Command, index: str) -> None:
    assert succeeded(regard("find", index, "Rome", "--count")).out == "4\n"
    assert succeeded(regard("find", index, "Nowhere", "--count")).out == "0\n"


def test_a_text_that_does_not_occur_is_no_error(regard: Command, index: str) -> None:
    assert "0 occurrences; --longest finds" in succeeded(regard("find", index, "x" * 10_000)).out
    assert succeeded(regard("find", index, "zzz", "--longest")).out == "no word of TEXT occurs\n"


def test_longest_spans_are_listed(regard: Command, index: str) -> None:
    outcome = succeeded(regard("find", index, "Nobody was born in Rome", "--longest"))
    assert outcome.out == "        4 × was born in Rome\n"


def test_results_are_written(regard: Command, folder: Path, index: str) -> None:
    for options, expected in [
        (
            (),
            {
                "query": "Mia",
                "count": 1,
                "occurrences": [
                    {
                        "path": "text.txt",
                        "line": 3,
                        "before": "",
                        "match": "Mia",
                        "after": " Bell was born in Rome.",
                    }
                ],
            },
        ),
        (("--count",), {"query": "Mia", "count": 1}),
        (
            ("--longest",),
            {"query": "Mia", "spans": [{"start": 0, "end": 3, "text": "Mia", "count": 1}]},
        ),
    ]:
        succeeded(regard("find", index, "Mia", *options, "--json", "x.json"))
        assert json.loads((folder / "x.json").read_text("utf-8")) == expected


def test_any_bytes_are_searched(regard: Command, folder: Path) -> None:
    (folder / "a.txt").write_text("Zoé \x1b[31mred\tend\n", "utf-8")
    succeeded(regard("index", "a.txt", "--out", "b.index"))
    assert succeeded(regard("find", "b.index", "\udcc3", "--count")).out == "1\n"
    succeeded(regard("find", "b.index", "\udcff", "--json", "x.json"))
    assert json.loads((folder / "x.json").read_text("utf-8"))["count"] == 0
    shown = succeeded(regard("find", "b.index", "red")).out
    assert shown.startswith("a.txt:1: Zoé �[31mred end\n")


def test_a_match_is_highlighted_on_a_terminal(
    folder: Path, index: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_args: False)
    monkeypatch.chdir(folder)
    main.run(["find", index, "Bell"])
    assert "Mia \x1b[31m\x1b[1mBell\x1b[0m was born" in capsys.readouterr().out


@pytest.mark.usefixtures("index")
def test_mistakes_are_refused(regard: Command) -> None:
    for command, says in [
        (("find", "a.index", ""), "TEXT is empty"),
        (("find", "nowhere", "x"), "nowhere: can't be read: No such file"),
        (("find", ".", "x"), ".: can't be read"),
        (("find", "text.txt", "x"), "text.txt: is not a corpus index"),
        (
            ("find", "a.index", "x", "--count", "--longest"),
            "--count and --longest exclude each other",
        ),
        (("find", "a.index", "x", "--max-count", "0"), "--max-count"),
        (("find", "a.index"), "Missing argument 'TEXT'"),
        (("index", "--out", "b"), "Missing argument 'CORPUS...'"),
        (("index", "text.txt"), "Missing option '--out'"),
        (("index", "nowhere", "--out", "b"), "nowhere: no such file"),
        (("index", "text.txt", "--out", "pairs.tsv"), "exists but is not an index"),
        (("index", "text.txt", "--out", "no/b"), "can't be written"),
        (("index", "text.txt", "--out", "b", "--documents", "line"), "did you mean lines?"),
        (
            ("index", "text.txt", "--out", "b", "--documents", "records"),
            "choose lines, paragraphs or files",
        ),
    ]:
        refused(regard(*command), says)


def test_the_index_is_not_overwritten(regard: Command, folder: Path, index: str) -> None:
    before = (folder / index).read_bytes()
    refused(regard("find", index, "Rome", "--json", index), f"--json {index}: is the index")
    assert (folder / index).read_bytes() == before
