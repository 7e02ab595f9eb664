"""regard index and regard find, with right and wrong input."""

import json
from pathlib import Path

import pytest

from regard.cli import main
from tiny import Command, succeeded


@pytest.fixture
def index(regard: Command) -> str:
    succeeded(regard("index", "text.txt", "--out", "a.index"))
    return "a.index"


def test_an_index_is_described(regard: Command) -> None:
    outcome = succeeded(regard("index", "text.txt", "--out", "a.index"))
    assert "documents: 8 (files: 1)" in outcome.out
    assert outcome.new == ["a.index"]
    assert "Index: a.index" in succeeded(regard("index", "text.txt", "--out", "a.index")).out


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["Bell was"], "text.txt:3: Mia Bell was born in Rome.\n1 occurrence\n"),
        (["born in Rome", "--count"], "4\n"),
        (["Nowhere", "--count"], "0\n"),
        (["x" * 10_000], "0 occurrences; --longest finds the parts of TEXT that occur\n"),
        (["zzz", "--longest"], "no word of TEXT occurs\n"),
        (["Nobody was born in Rome", "--longest"], "        4 × was born in Rome\n"),
    ],
    ids=["a place", "a count", "none", "none of many", "no span", "a span"],
)
def test_places_counts_and_spans_are_printed(
    regard: Command, index: str, arguments: list[str], printed: str
) -> None:
    assert succeeded(regard("find", index, *arguments)).out == printed


def test_of_many_places_some_are_shown(regard: Command, index: str) -> None:
    *_, last, count = succeeded(regard("find", index, "Rome", "--max-count", 2)).out.splitlines()
    assert (last, count) == ("text.txt:3: Mia Bell was born in Rome.", "4 occurrences")


def test_results_are_written(regard: Command, folder: Path, index: str) -> None:
    after = " Bell was born in Rome."
    for options, expected in [
        (
            (),
            {
                "query": "Mia",
                "count": 1,
                "occurrences": [
                    {"path": "text.txt", "line": 3, "before": "", "match": "Mia", "after": after}
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
