"""What studies there are."""

import json
from itertools import groupby

import pytest
from click.testing import CliRunner

import regard.studies
from regard.cli.study import study as study_command
from regard.errors import UserError
from regard.studies.registry import THEMES, all_studies, choose_themes, find_study
from regard.studies.study import Study

STUDIES = list(all_studies())


def test_names_are_unique_and_findable() -> None:
    assert len({study.name for study in STUDIES}) == len(STUDIES)
    for study in STUDIES:
        assert find_study(study.name) is study
        assert getattr(regard.studies, study.name.replace("-", "_")) is study


def test_studies_of_one_row_stand_together() -> None:
    rows = [row for study in STUDIES for row in study.rows]
    together = [row for row, _ in groupby(rows)]
    assert len(set(together)) == len(together)
    for row in rows:
        assert row in find_study(row.lower()).rows


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_each_study_says_what_it_is_about(study: Study[object]) -> None:
    assert study.question.endswith("?")
    assert study.claim.endswith(".")
    assert study.explanation
    assert study.asked
    assert all(asked.split()[0] in {"000", "001", "002", "003", "004"} for asked in study.asked)
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


def test_every_row_of_the_specification_is_covered() -> None:
    covered = {row for study in STUDIES for row in study.rows}
    assert covered == {f"S{number}" for number in range(1, 37)}


def test_the_list_tells_the_rows_as_json() -> None:
    outcome = CliRunner().invoke(study_command, ["list", "--json"])
    assert outcome.exit_code == 0
    listed = {one["id"]: one["rows"] for one in json.loads(outcome.stdout)}
    assert listed == {study.name: list(study.rows) for study in STUDIES}
