"""Numbers of findings in the texts of courses."""

import re
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.courses import Correction, Part, all_corrections, all_parts
from regard.studies.finding import Finding, Measurement, Replication, Row
from regard.studies.quotations import QUOTATION, corrections_of, with_numbers
from regard.studies.registry import all_studies
from regard.studies.single_head.one_head import averaging

STORED = {study.name: study.stored_result() for study in all_studies()}
ROWS = {name: (*one.rows, *one.outside_condition_rows) for name, one in STORED.items()}
NUMBER = re.compile(r"(?<![\w.,{/])[−-]?\d+(?:,\d{3})*(?:\.\d+)?(?: %)?")
COINCIDENCES = {
    "jhu-hw5 1.5": {"20"},  # frames that are read
    "jhu-hw5 1.7": {"16", "20"},  # ids of tokens
    "jhu-hw5 1.8": {"16"},  # a width that is given
    "jhu-hw5 1.10": {"64", "123"},  # a power of 2; steps that are given
    "jhu-hw5 3.1": {"1.5"},  # of the formula in the same sentence
    "eecs182-hw8 2.a.ii": {"0.3"},  # a threshold, in the name of the measurement
    "eecs182-hw8 2.b.i": {"0.3"},  # the same
    "eecs182-hw8 2.b.ii": {"0.3"},  # the same
    "eecs182-hw8 2.c.i": {"0.3"},  # the same
    "eecs182-hw8 1.g": {"0.1"},  # a threshold of the study
    "eecs182-hw8 2.c.ii": {"0.2"},  # a head, by layer and number
    "eecs182-hw8 2.d.i": {
        "0.31",
        "3 %",
        "30 %",
    },  # of the formula in the same or the sentence before
    "eecs182-transformers i": {"0.1"},  # an error by the number of questions
    # Of the experiment on the real data:
    "practical-4 4.a": {"5.0 %", "0.4"},
    "practical-4 4.b": {"0.5", "0.50", "0.56", "0.85"},
    "practical-4 4.c": {"0.91"},
}
"""Numbers that equal a measurement of a study of the part, and aren't quoted from it."""


def correction(right: str) -> Correction:
    return Correction(course="jhu-hw5", part="1.1", study="averaging", says="No.", right=right)


def quoted(finding: Finding, *texts: str) -> list[str]:
    """What the quotations of a finding become."""
    right = "; ".join(f"{{study:averaging/{text}}}" for text in texts)
    return with_numbers(correction(right), {"averaging": finding}).right.split("; ")


def over_seeds(*values: float) -> Finding:
    """A finding with a measurement that has these values."""
    one = STORED["averaging"]
    replications = tuple(
        Replication(seed=seed, numbers=(Measurement(name="gain", measured=value),))
        for seed, value in enumerate(values)
    )
    return Finding(**{name: getattr(one, name) for name in one.__struct_fields__}
                   | {"replications": replications})  # fmt: skip


def test_a_changed_result_changes_the_sentence() -> None:
    forms = ("weight of v_a|.2f", "weight of v_a|predicted .1%", "n|d", "t|g")
    assert quoted(averaging(n=10, t=8.0), *forms) == ["0.50", "49.9 %", "10", "8"]
    assert quoted(averaging(n=20, t=2.0), *forms) == ["0.23", "22.5 %", "20", "2"]


def test_several_seeds_give_a_range_a_mean_or_a_count() -> None:
    forms = [f"gain|{form}" for form in ("range .1f", "mean .0%", "seeds > 0", "least g")]
    assert quoted(over_seeds(0.5, -0.25, 0.5), *forms) == [
        "-0.2 to 0.5", "25 %", "two of three seeds", "-0.25",
    ]  # fmt: skip
    assert quoted(over_seeds(0.5, 0.5), *forms)[:3] == ["0.5", "50 %", "all two seeds"]


@given(st.lists(st.floats(-1000, 1000), min_size=1, max_size=5), st.integers(0, 4))
def test_a_printed_bound_is_true_of_every_seed(values: list[float], decimals: int) -> None:
    float32 = 1e-6 * max(map(abs, values))
    for kind, unit, end in (("f", 1.0, ""), ("%", 100.0, " %")):
        forms = [f"gain|{choice} .{decimals}{kind}" for choice in ("least", "largest")]
        bounds = quoted(over_seeds(*values), *forms)
        least, largest = (float(text.removesuffix(end)) / unit for text in bounds)
        step = 10**-decimals / unit
        assert min(values) - step - float32 <= least <= min(values) + float32
        assert max(values) - float32 <= largest <= max(values) + step + float32


def test_a_bound_is_rounded_outwards_and_a_printed_value_stays() -> None:
    forms = ("gain|least .0f", "gain|largest .0f", "gain|least .0%", "gain|largest .2g")
    assert quoted(over_seeds(16.92, 18.5), *forms) == ["16", "19", "1692 %", "19"]
    assert quoted(over_seeds(0.1184, 0.0322), "gain|largest .2f") == ["0.12"]
    assert quoted(over_seeds(0.29, 0.3), "gain|least .0%", "gain|largest .1f") == ["29 %", "0.3"]
    float32 = (0.9900000095, 0.1 + 0.2)  # 0.99 and 0.3
    assert quoted(over_seeds(*float32), "gain|largest .2f", "gain|largest .0%") == ["0.99", "99 %"]
    assert quoted(over_seeds(-0.001, -2.0), "gain|largest .2f", "gain|least .2f") == [
        "0.00", "-2.00",
    ]  # fmt: skip


@given(st.lists(st.floats(-1000, 1000), min_size=1, max_size=5))
def test_a_printed_range_contains_every_rounded_seed(values: list[float]) -> None:
    (found,) = quoted(over_seeds(*values), "gain|range .1f")
    ends = [float(end) for end in found.split(" to ")]
    assert all(ends[0] <= round(value, 1) <= ends[-1] for value in values)


def test_the_printed_bounds_of_answers_are_true_of_every_seed() -> None:
    found = 0
    for part in all_parts():
        for text in texts(part):
            for study, name, form in QUOTATION.findall(text):
                choice = form.partition(" ")[0]
                if choice not in ("least", "largest"):
                    continue
                values = STORED[study].row(name).values
                quotation = correction(f"{{study:{study}/{name}|{form}}}")
                printed = with_numbers(quotation, {study: STORED[study]}).right
                bound = float(printed.removesuffix(" %")) / (100 if "%" in printed else 1)
                sign = 1 if choice == "least" else -1
                assert all(sign * bound <= sign * value for value in values if value is not None)
                found += 1
    assert found >= 5


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("gain|.2f", "which of 2 seeds"),
        ("gain|most .2f", "no such choice"),
        ("gain|predicted .2f", "no predicted value"),
        ("loss|.2f", "no measurement loss"),
    ],
)
def test_a_quotation_that_says_nothing_is_an_error(text: str, error: str) -> None:
    with pytest.raises((KeyError, ValueError), match=error):
        quoted(over_seeds(1.0, 2.0), text)


def test_every_quotation_of_a_part_is_of_a_study_that_it_cites() -> None:
    for part in all_parts():
        found = with_numbers(part, {name: STORED[name] for name in part.studies})
        assert not any("{study:" in text for text in texts(found)), part.place
    for name, finding in STORED.items():
        assert not any("{study:" in one.right for one in corrections_of(finding)), name
    assert sum(bool(QUOTATION.search(part.answer)) for part in all_parts()) >= 20


def texts(part: Part) -> list[str]:
    """The texts that may state what was measured."""
    reasons = [option.why for option in part.options]
    return [part.answer, *reasons, *(shown.text for shown in part.shown)]


def values(row: Row) -> set[float]:
    """What a text may quote of a measurement."""
    found = [value for value in row.values if value is not None]
    return {*found, fmean(found)}


def plain_numbers(text: str) -> list[tuple[str, float, int]]:
    """Numbers with two digits or more that aren't quoted: as written, value and decimals."""
    found = []
    for written in NUMBER.findall(QUOTATION.sub("", text)):
        digits = written.removesuffix(" %").replace(",", "").replace("−", "-")
        value, decimals = float(digits), len(digits.partition(".")[2])
        percent = written.endswith("%")
        if decimals or percent or abs(value) >= 10:
            found.append((written, value / 100 if percent else value, decimals + 2 * percent))
    return found


def typed_by_hand(rows: list[Row], text: str) -> set[str]:
    """Numbers of a text that equal a measurement when it is rounded as they are."""
    every = {value for row in rows for value in values(row)}
    return {
        written
        for written, value, decimals in plain_numbers(text)
        if any(abs(round(one, decimals) - value) < 1e-9 for one in every)
    }


def test_no_measurement_is_typed_by_hand() -> None:
    found = {}
    for part in all_parts():
        rows = [row for name in part.studies for row in ROWS[name]]
        if typed := set().union(*(typed_by_hand(rows, text) for text in texts(part))):
            found[part.place] = typed
    assert found == COINCIDENCES
    for one in all_corrections():
        assert not typed_by_hand(list(ROWS[one.study]), one.right), one.study


def test_a_number_typed_by_hand_is_found() -> None:
    rows = list(averaging(n=10, t=8.0).rows)
    assert typed_by_hand(rows, "It is 0.13 %, or 0.499, not 0.15 %.") == {"0.13 %", "0.499"}
    assert not typed_by_hand(rows, "{study:averaging/weight of all others|.2%}, 1 of 2.")
