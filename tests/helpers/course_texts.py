"""Texts of courses and studies, and the stored values that they are about."""

from regard.courses import find_part
from regard.studies.figure import Chart
from regard.studies.registry import find_study


def answer(course: str, number: str) -> str:
    """The answer of a part, without its line breaks."""
    return " ".join(find_part(course, number).answer.split())


def claim(study: str) -> str:
    """The claim of a study, without its line breaks."""
    return " ".join(find_study(study).claim.split())


def values(study: str, number: str) -> list[float]:
    """The stored values of a measurement, over seeds."""
    row = find_study(study).stored_result().row(number)
    return [value for value in row.values if value is not None]


def last_chart(study: str) -> Chart:
    """The last panel of the figure of a stored finding."""
    figure = find_study(study).stored_result().figure
    assert figure is not None
    chart = figure.panels[-1]
    assert isinstance(chart, Chart)
    return chart


def caption(study: str) -> str:
    """The stored caption of the figure of a finding."""
    figure = find_study(study).stored_result().figure
    assert figure is not None
    return figure.caption
