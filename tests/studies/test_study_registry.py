"""The registry of studies."""

import ast
import json
import re
from pathlib import Path
from string import Formatter

import pytest
from click.testing import CliRunner, Result

import regard.studies
from regard.cli.main import regard as whole_command
from regard.courses import COURSES
from regard.errors import UserError
from regard.studies.registry import THEMES, all_studies, find_study

STUDIES = list(all_studies())


def test_studies_stand_in_the_order_of_their_imports() -> None:
    """Also where a module that has the name of its study is imported by an earlier one."""
    themes = Path(regard.studies.__file__).parent.glob("*/__init__.py")
    listed = {
        path.parent.name: [
            alias.name.replace("_", "-")
            for line in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(line, ast.ImportFrom)
            for alias in line.names
        ]
        for path in themes
    }
    found = {}
    for theme in THEMES:
        package = theme.studies[0].function.__module__.split(".")[2]
        found[package] = [study.name for study in theme.studies]
    assert found == {package: names for package, names in listed.items() if names}


def test_names_are_unique_and_findable() -> None:
    assert len({study.name for study in STUDIES}) == len(STUDIES)
    for study in STUDIES:
        assert find_study(study.name) is study
        assert getattr(regard.studies, study.name.replace("-", "_")) is study


def test_each_study_says_what_it_is_about() -> None:
    courses = set(COURSES)
    for study in STUDIES:
        assert study.question.endswith("?"), study.name
        assert study.claim.endswith("."), study.name
        assert study.explanation, study.name
        assert study.asked, study.name
        for place in study.asked:
            course, part = place.split()
            courses.discard(course)
            assert course in COURSES
            assert re.fullmatch(r"[0-9a-z]+(\.([0-9]+|[a-z]+))*", part), part
        for parameter in study.parameters:
            assert parameter.description, parameter.name
            assert parameter.range, parameter.name
        _, _, described = (study.function.__doc__ or "").partition("Args:\n")
        assert set(re.findall(r"^ {8}(\w+): ", described, re.MULTILINE)) <= set(study.defaults)
    assert not courses, "each course has a study"


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match="there are: copying"):
        find_study("nonsense")
    with pytest.raises(AttributeError):
        _ = regard.studies.nonsense


def test_courses_are_named_by_title_and_part() -> None:
    asked = find_study("complexity").asked_in
    assert asked.startswith(f"{COURSES['jhu-hw5']}: 3.1; ")


def invoked(*arguments: str, catch: bool = False) -> Result:
    """A command, from the outermost: click keeps the options for help of the first call."""
    return CliRunner().invoke(whole_command, ["study", *arguments], catch_exceptions=catch)


def test_the_list_can_be_of_one_course() -> None:
    outcome = invoked("list", "--json", "--course", "jhu-hw5")
    assert outcome.exit_code == 0
    listed = {one["id"]: one["asked"] for one in json.loads(outcome.stdout)}
    ours = {study.name: list(study.asked) for study in STUDIES}
    chosen = {n: asked for n, asked in ours.items() if any("jhu-hw5" in one for one in asked)}
    assert listed == chosen
    assert 0 < len(chosen) < len(ours)
    with pytest.raises(UserError, match="there are: jhu-hw5"):
        invoked("list", "--course", "x")


def test_studies_that_train_have_a_seed() -> None:
    for study in STUDIES:
        assert "seeds" not in study.defaults, study.name
        assert not study.trains or "seed" in study.defaults, study.name


def test_the_command_runs_a_study_over_seeds(tmp_path: Path) -> None:
    arguments = ["run", "noisy-keys-one-head", "seeds=2", "seed=3", "--out", str(tmp_path)]
    printed = invoked(*arguments).stdout
    for text in ("seed 3", "seed 4", "range", "2 of 2", "The claim holds for 2 of 2 seeds."):
        assert text in printed
    table = (tmp_path / "noisy-keys-one-head.csv").read_text(encoding="utf-8")
    assert {line.split(",")[0] for line in table.splitlines()} == {"seed", "3", "4"}
    assert "seeds=N" in invoked("run", "copying", "--help").stdout
    assert "seeds=N" not in invoked("run", "averaging", "--help").stdout


def test_a_finding_that_cannot_be_saved_is_printed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outcome = invoked("run", "averaging", "--out", str(tmp_path / "file" / "new"), catch=True)
    assert isinstance(outcome.exception, OSError)
    assert "The claim holds" in outcome.stdout


def test_the_stored_caption_is_that_of_the_docstring() -> None:
    for study in STUDIES:
        parts = list(Formatter().parse(study.caption))
        pattern = "".join(re.escape(text) + (".+" if name else "") for text, name, *_ in parts)
        assert parts
        assert re.fullmatch(pattern, study.stored_result().caption)
