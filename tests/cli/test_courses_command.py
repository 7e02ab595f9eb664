"""regard courses"""

import json

import pytest
from click.testing import CliRunner

from regard.cli.courses import courses
from regard.cli.main import run
from regard.courses import COURSES, all_parts


def listed(*options: str) -> str:
    return CliRunner().invoke(courses, options, catch_exceptions=False).stdout


def test_json_has_every_part_with_what_answers_it() -> None:
    found = json.loads(listed("--json"))
    assert [f"{one['course']} {one['part']}" for one in found] == [p.place for p in all_parts()]
    wanted = {"course", "part", "kind", "problem", "answer", "options", "shown"}
    wanted |= {"studies", "derivation", "pages", "command"}
    for one in found:
        assert set(one) == wanted
    (one,) = (o for o in found if (o["course"], o["part"]) == ("eecs182-disc8", "2.a"))
    assert one["studies"] == ["products"]
    assert {"id", "text", "by"} == set(one["shown"][0])


def test_the_table_has_a_row_for_each_part_of_a_course() -> None:
    table = listed("--course", "eecs182-disc8")
    assert COURSES["eecs182-disc8"] in table
    assert COURSES["jhu-hw5"] not in table
    for part in all_parts():
        if part.course == "eecs182-disc8":
            assert f"\n{part.number} " in table
    assert "What is h₂′ if softmax is replaced by argmax?" in table
    assert "derivation products-by-hand" in table


def test_no_path_is_cut_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "80"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    table = listed("--course", "practical-4")
    assert max(map(len, table.splitlines())) <= 100, "a terminal of 80 columns, with escapes"
    assert "…" not in table


def test_an_unknown_course_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["courses", "--course", "practical-5"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("regard: practical-5: no such course; there are: jhu-hw5")
    assert message.endswith("did you mean practical-4?\n")
    assert message.count("\n") == 1
