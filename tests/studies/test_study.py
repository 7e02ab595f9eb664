"""Functions that become studies."""

import csv
import io
import shlex
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from regard.cli.study import SEEDS, _print
from regard.config import override
from regard.errors import UserError
from regard.studies.figure import Chart, Figure, bars, chart, figure
from regard.studies.finding import Finding, Outside, Verdict, at_most
from regard.studies.registry import all_studies, find_study
from regard.studies.study import EvidenceParts, Seed, study

NOTHING = figure(chart(bars([1])), drawn="nothing")


@study()
def how_big(
    n: Annotated[int, Meta(ge=1, le=9, description="size")] = 1,
    kind: Annotated[float, Meta(gt=0, description="what the docstring replaces")] = 0.5,
) -> EvidenceParts:
    """How big?

    Small.

    $$ x < 2 $$

    First
    paragraph.

    Second.

    Figure. Size {n}:
    {drawn}.

    Args:
        kind: kind, in a description
            of two lines: both
    """
    yield at_most("size", n * kind, 2)
    yield NOTHING


def test_the_docstring_is_the_text() -> None:
    assert how_big.question == "How big?"
    assert how_big.claim == "Small."
    assert how_big.formula == "x < 2"
    assert how_big.explanation == "First paragraph.\nSecond."
    assert how_big(n=3).caption == "Size 3: nothing."


def test_a_study_knows_its_parameters() -> None:
    assert how_big.name == "how-big"
    assert how_big.defaults == {"n": 1, "kind": 0.5}
    shown = [(p.name, p.default, p.description, p.range) for p in how_big.parameters]
    assert shown == [
        ("n", 1, "size", "integer and ≥ 1 and ≤ 9"),
        ("kind", 0.5, "kind, in a description of two lines: both", "number and > 0"),
    ]


def test_python_and_command_line_give_the_same() -> None:
    called, told = how_big(n=3), how_big.with_texts(["n=3"])
    assert called.parameters == told.parameters == {"n": 3, "kind": 0.5}
    assert called.numbers == told.numbers
    assert how_big(8, 0.5).verdict is Verdict.FAILS
    assert how_big().verdict is Verdict.HOLDS


@pytest.mark.parametrize("wrong", ["n=0", "n=10", "n=x", "m=1", "kind=0"])
def test_a_parameter_out_of_range_is_refused_in_one_line(wrong: str) -> None:
    with pytest.raises(UserError, match=rf"^how-big: {wrong[: wrong.index('=')]}.*$"):
        how_big.with_texts([wrong])
    with pytest.raises(UserError, match=r"how-big: n: expected an integer <= 9"):
        how_big(n=10)


@study()
def luck(seed: Seed = 0, limit: float = 0.5) -> EvidenceParts:
    """How lucky?

    Below a half.

    $$ x < 1/2 $$

    A number that depends on the seed.
    """
    drawn = (seed * 7 % 10) / 10  # 0, 0.7, 0.4, 0.1, 0.8, 0.5, …
    yield at_most("number", drawn, limit)
    yield Outside(condition="luck", numbers=(at_most("twice the number", 2 * drawn, limit),))
    yield NOTHING


def test_a_study_runs_over_seeds() -> None:
    found = luck.over_seeds(range(5), limit=0.45)
    assert found.seeds == (0, 1, 2, 3, 4)
    assert [one.numbers[0].measured for one in found.replications] == [0, 0.7, 0.4, 0.1, 0.8]
    assert found.parameters == {"seed": 0, "limit": 0.45}
    assert found.numbers == luck(seed=0, limit=0.45).numbers
    assert found.verdict is Verdict.DEPENDS
    assert found.conclusion == "depends on the seed (3 of 5)"
    (row,) = found.rows
    assert (row.range, row.held, row.mark) == ("0 to 0.8", 3, "3 of 5")
    assert found.command == "regard study run luck seed=0 limit=0.45 seeds=5"
    assert luck.over_seeds([3, 7], limit=0.45).command == (
        "regard study run luck seed=3 limit=0.45 && regard study run luck seed=7 limit=0.45"
    )


@pytest.mark.parametrize(
    ("seeds", "limit", "conclusion"),
    [
        ([0, 3], 0.5, "holds for 2 of 2 seeds"),
        ([0, 2], 0.5, "holds under a condition for 2 of 2 seeds"),
        ([1, 4], 0.5, "fails for 2 of 2 seeds"),
        ([1, 0], 0.5, "depends on the seed (1 of 2)"),
        ([4], 0.5, "fails for 1 of 1 seeds"),
    ],
)
def test_the_conclusion_counts_seeds(seeds: list[int], limit: float, conclusion: str) -> None:
    assert luck.over_seeds(seeds, limit=limit).conclusion == conclusion
    assert f"The claim {conclusion}" in luck.over_seeds(seeds)._repr_html_()


def test_seeds_are_given_as_text() -> None:
    assert luck.with_texts(["seeds=3", "seed=4"]).seeds == (4, 5, 6)
    assert luck.with_texts(["seed=4"]).seeds == ()
    assert luck.with_texts(["seed=4"]).conclusion == "fails"


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ("seeds=0", "luck: seeds: expected a number from 1 to 1000, not '0'"),
        ("seeds=x", "luck: seeds: expected a number from 1 to 1000, not 'x'"),
        ("seeds=1001", "luck: seeds: expected a number from 1 to 1000, not '1001'"),
        ("seeds=2 seed=4294967295", "luck: seed: expected an integer <= 4294967295"),
        ("seeds=2 limits=1", "luck: limits: no such field"),
    ],
)
def test_wrong_seeds_are_refused_in_one_line(assignments: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"^{message}.*$"):
        luck.with_texts(assignments.split())


def test_seeds_need_a_parameter_seed() -> None:
    with pytest.raises(UserError, match="how-big: seeds: this study draws nothing at random"):
        how_big.with_texts(["seeds=2"])
    with pytest.raises(UserError, match="luck: seeds: none are given"):
        luck.over_seeds([])


def test_findings_over_seeds_survive_the_disk(tmp_path: Path) -> None:
    found = luck.over_seeds(range(5))
    found.save(tmp_path)
    loaded = luck.stored_result(tmp_path)
    assert loaded.replications == found.replications
    assert loaded.conclusion == found.conclusion
    rows = list(csv.DictReader(io.StringIO((tmp_path / "luck.csv").read_text())))
    assert [(row["seed"], row["under"]) for row in rows[:3]] == [
        ("0", "condition"),
        ("0", "outside condition"),
        ("1", "condition"),
    ]
    assert len(rows) == 10


def test_none_may_be_a_choice() -> None:
    settings = find_study("permutation")._settings
    found = override(settings(positions="alibi"), ["positions=none"])
    assert msgspec.to_builtins(found)["positions"] == "none"


def test_the_printed_command_gives_the_same_parameters() -> None:
    empty = Figure(panels=[Chart()], caption="")
    for one in all_studies():
        finding = Finding(study=one, parameters=one.defaults, seconds=0, numbers=(), figure=empty)
        given = shlex.split(finding.command)[4:]
        settings = override(one._settings(), given, where=one.name)
        assert msgspec.json.decode(msgspec.json.encode(settings)) == one.defaults, one.name


def test_the_table_of_many_seeds_has_their_range_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _print(luck.over_seeds(range(SEEDS + 1)))
    shown = capsys.readouterr().out
    assert "range" in shown
    assert "seed 0" not in shown


def test_brackets_of_a_text_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text = "see [b] and [/i] here, in a text that is long enough for letters"
    _print(find_study("free-labels")(text=text))
    assert "[b] and [/i]" in " ".join(capsys.readouterr().out.split())
