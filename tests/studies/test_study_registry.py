"""The registry of studies."""

import json
import re

import pytest
from click.testing import CliRunner

import regard.studies
from regard.cli.study import study as study_command
from regard.errors import UserError
from regard.studies.registry import THEMES, all_studies, choose_themes, find_study
from regard.studies.study import COURSES, Study

STUDIES = list(all_studies())


def test_names_are_unique_and_findable() -> None:
    assert len({study.name for study in STUDIES}) == len(STUDIES)
    for study in STUDIES:
        assert find_study(study.name) is study
        assert getattr(regard.studies, study.name.replace("-", "_")) is study


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_each_study_says_what_it_is_about(study: Study[object]) -> None:
    assert study.question.endswith("?")
    assert study.claim.endswith(".")
    assert study.explanation
    assert study.asked
    for place in study.asked:
        course, part = place.split()
        assert course in COURSES
        assert re.fullmatch(r"[0-9a-z]+(\.([0-9]+|[a-z]+))*", part), part
    for parameter in study.parameters:
        assert parameter.description, parameter.name
        assert parameter.range, parameter.name


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match="there are: copying"):
        find_study("nonsense")
    with pytest.raises(UserError, match="there are: attention by hand"):
        choose_themes(["nonsense"])
    with pytest.raises(AttributeError):
        _ = regard.studies.nonsense
    assert choose_themes([]) == THEMES
    assert choose_themes([THEMES[0].name]) == THEMES[:1]


def test_every_course_is_covered() -> None:
    assert {place.split()[0] for study in STUDIES for place in study.asked} == set(COURSES)


def test_courses_are_named_by_title_and_part() -> None:
    asked = find_study("complexity").asked_in
    assert asked.startswith(f"{COURSES['jhu-hw5']}: 3.1; ")


def test_the_list_can_be_of_one_course() -> None:
    outcome = CliRunner().invoke(study_command, ["list", "--json", "--course", "jhu-hw5"])
    assert outcome.exit_code == 0
    listed = {one["id"]: one["asked"] for one in json.loads(outcome.stdout)}
    ours = {study.name: list(study.asked) for study in STUDIES}
    chosen = {n: asked for n, asked in ours.items() if any("jhu-hw5" in one for one in asked)}
    assert listed == chosen
    assert 0 < len(chosen) < len(ours)
    with pytest.raises(UserError, match="there are: jhu-hw5"):
        CliRunner().invoke(study_command, ["list", "--course", "x"], catch_exceptions=False)
