"""What answers, studies and predictions of the courses say is true of the stored results."""

import re
from math import exp, log
from pathlib import Path

import pytest

from course_texts import answer, caption, claim, last_chart, values
from regard.book.figure_predictions import FIGURE_PREDICTIONS
from regard.book.predictions import PREDICTIONS
from regard.courses import all_parts
from regard.derivations import DERIVATIONS
from regard.studies.registry import find_study


def test_norms_of_projected_values_are_called_so() -> None:
    """eecs182-hw8 2.a.ii and 2.b.i: in a layer of the BERT, the values themselves differ less."""
    quoting = [part for part in all_parts() if "‖v W_O‖" in part.answer]
    assert len(quoting) == 2
    for part in quoting:
        assert "after the output projection" in " ".join(part.answer.split()), part.place


def test_a_pretrained_bert_has_one_head_for_each_neighbor() -> None:
    """eecs182-hw8 2.b.ii and 2.b.iv: by the criterion of 2.c.ii, and in each order."""
    table = find_study("pretrained-heads").stored_result().table
    assert table is not None
    for neighbor in ("previous token", "next token"):
        column = table.columns.index(neighbor)
        assert sum(float(row[column]) >= 0.5 for row in table.rows) == 1
        for order in ("words reversed", "sentences exchanged"):
            assert min(values("pretrained-heads", f"{neighbor}, the same head, {order}")) > 0.5
    text = answer("eecs182-hw8", "2.b.iv")
    assert "has a head for the next token and one for the previous token" in text
    assert "attend to it in all three orders" in text
    best = values("head-patterns", "encoder: next token, best head")
    assert min(best) < 0.5, "so not every BERT has one"
    assert "The BERT measured here has a head for the next" in answer("eecs182-hw8", "2.b.ii")


def test_a_head_of_the_exercises_attends_to_the_other_sentence() -> None:
    """eecs182-hw8 2.b.iv: in all trainings, by the page that it cites."""
    page = (Path(__file__).parents[2] / "docs/exercises/README.md").read_text("utf-8")
    found = re.search(r"\| other sentence, best head \| [\d.]+ \| ([\d.]+) to [\d.]+ \|", page)
    assert found is not None
    assert float(found[1]) > 0.5
    text = answer("eecs182-hw8", "2.b.iv")
    assert "one head gives more than half of its weight to the other sentence" in text


def test_bounds_in_captions_hold() -> None:
    """eecs182-hw8 1.g and eecs182-transformers a show these figures."""
    bars = {one.label: one.values for one in last_chart("performer").bars}
    texts = caption("performer")
    least, largest = (re.search(rf"at {x} ([\d.]+)\. ", texts) for x in ("least", "most"))
    assert least is not None
    assert largest is not None
    assert all(x is not None and x >= float(least[1]) for x in bars["trained with FAVOR+"])
    replaced = bars["FAVOR+ replacing softmax"]
    assert all(x is not None and x <= float(largest[1]) for x in replaced)
    assert "is about" in caption("permutation"), "a rounded number is no bound"


def test_a_performer_is_as_accurate_at_four_of_the_stored_seeds() -> None:
    finding = find_study("performer").stored_result()
    below = [
        max(one.measured for one in seed.numbers if one.name.startswith("accuracy below"))
        for seed in finding.replications
    ]
    assert sum(value <= 0.1 for value in below) == 4
    assert len(below) == 5
    assert "at four of five seeds (0 to 4)" in claim("performer")
    assert f"it is {max(below):.3f} below with 2 heads and 4 directions" in claim("performer")
    assert max(below) == max(
        values(
            "performer", "accuracy below softmax with as many heads: FAVOR+, 2 heads, 4 directions"
        )
    )


def test_each_structure_has_a_head_at_each_stored_seed() -> None:
    finding = find_study("structures").stored_result()
    assert len(finding.replications) == 5
    assert all(one.holds for seed in finding.replications for one in seed.numbers)
    assert "At each of five seeds (0 to 4), each structure has a head." in " ".join(
        find_study("structures").explanation.split()
    )


def test_attention_becomes_quadratic_slowly() -> None:
    """jhu-hw5 3.1: at n = 1.5h, the exponent of the sum is 1.5."""
    (halfway,) = values("complexity", "exponent of the count from n = 48 to 192")
    assert halfway == pytest.approx(1.5)
    assert "nearly quadratic in n only for texts much longer" in claim("complexity")


def test_a_margin_above_the_logarithm_of_n_is_enough() -> None:
    """practical-4 2.b: the score needn't be large compared with ln n."""
    n = 1e6
    t = log(n) + 4
    assert (n - 2) / (2 * exp(t) + n - 2) < 0.01
    assert t < 1.5 * log(n)
    assert r"exceed $\ln n$ by a margin" in answer("practical-4", "2.b")


def test_a_short_key_keeps_some_of_its_weight() -> None:
    """practical-4 2.d.2: below one half, but often above a quarter."""
    t, n = 8.0, 10

    def weight(gamma: float) -> float:
        return exp(t * gamma) / (exp(t * gamma) + n - 1)

    assert weight(log(3) / t) == pytest.approx(0.25)
    assert weight(log(9) / t) == pytest.approx(0.5)
    study = "noisy-keys-two-heads"
    inside = "share of draws with less than a quarter of the weight outside, two heads"
    assert values(study, inside) == values(study, "share of draws with α_a > ½")
    text = answer("practical-4", "2.d.2")
    assert "the other values together get more than half of the weight in $c_1$" in text
    assert "more than a quarter of the weight in the output is wrong" in text


def test_memory_of_approximations_grows_at_most_linearly() -> None:
    """practical-4 3.g.1."""
    for name in ("Linformer", "BigBird", "Performer"):
        assert max(values("approximations", f"exponent of the length, {name}: memory")) <= 1
    assert "their memory at most linearly" in claim("approximations")


def test_random_blocks_keep_most_of_the_spectral_gap() -> None:
    """practical-4 3.g.2: it falls by about a fifth; with a global block, hardly."""
    ratios = {}
    for one in last_chart("block-graph").series:
        first, *_, last = (y for y in one.y if y is not None)
        ratios[one.label] = last / first
    assert 0.75 < ratios["window, random"] < 0.85
    assert 0.95 < ratios["window, global"] < 1
    assert "it falls by about a fifth from 32 to 256 blocks (seed 0)" in claim("block-graph")
    assert "little with random blocks, and hardly with a global one" in caption("block-graph")


def test_positive_features_are_exact_for_a_negative() -> None:
    """practical-4 3.h.3: not for other vectors of opposite direction, such as y = −2x."""

    def error(norm_of_the_sum: float) -> float:
        return exp(norm_of_the_sum**2) * (1 - exp(-(norm_of_the_sum**2)))

    assert error(0) == 0
    assert error(1) > 1
    assert "A key is the negative of a query." in PREDICTIONS["favor"].question


def test_orthogonal_directions_have_a_cost() -> None:
    """practical-4 3.h.4: and two are needed."""
    last = DERIVATIONS["orthogonal-features"].steps[-1]
    assert r"With $m \geq 2$" in last.reason
    assert "The cost is one orthogonalization per draw." in last.reason


def test_wordings_and_orders_of_facts_make_them_easier_to_retrieve() -> None:
    """practical-4 4.a: with questions afterwards, wordings alone gain little."""
    panel = last_chart("augmentation")
    mixed, after = (dict(zip(panel.names, bars.values, strict=True)) for bars in panel.bars)
    one, wordings, permuted = (after[name] or 0 for name in panel.names)
    assert wordings - one < 0.1 < permuted - wordings
    assert max(x or 0 for x in after.values()) < max(x or 0 for x in mixed.values())
    assert "several wordings and orders are easier" in answer("practical-4", "4.a")
    gains = (
        values("augmentation", f"{time}: permuted minus one biography")
        for time in ("afterwards", "mixed")
    )
    smaller = [after < mixed for after, mixed in zip(*gains, strict=True)]
    assert smaller == [True] * 5
    assert (
        f"{min(values('augmentation', 'afterwards: permuted minus one biography')):.2f}" == "0.05"
    )
    text = " ".join(find_study("augmentation").explanation.split())
    assert "at each of five seeds (0 to 4); at one it is only 0.05." in text


def test_a_changed_biography_of_five_hardly_matters() -> None:
    """practical-4 4.a: though with three of five changed, the majority isn't what it answers."""
    assert max(values("counterfactual", "one of five changed: the new place")) < 0.1
    assert min(values("counterfactual", "other people: least accuracy over all texts")) > 0.7
    assert "for less than a tenth of the people" in claim("counterfactual")
    new, old = (one.y for one in last_chart("counterfactual").series[:2])
    assert new[3] == pytest.approx(old[3], abs=0.05)
    text = " ".join(find_study("counterfactual").explanation.split())
    assert "With three of five biographies changed" in text
    (reason,) = (
        option.why for option in FIGURE_PREDICTIONS["counterfactual"].options if option.right
    )
    assert reason == "Less than one time in ten, at each of five seeds."


def test_conditions_of_answers_are_named() -> None:
    """jhu-hw5 3.5.3 and 4, practical-4 3.g.2 and 4.a: under others, results differ."""
    assert find_study("scale").stored_result().parameters["sigma"] == 1
    assert "if this is small compared with" in answer("jhu-hw5", "3.5.3")
    text = answer("jhu-hw5", "4")
    assert "of 4, 8 and 12 characters right, after a quarter of the steps" in text
    assert "Without attention, after all steps, the share" in text
    assert "Except in the few global blocks, the number" in answer("practical-4", "3.g.2")
    assert "vary the order of the facts, too (seed 0)" in claim("augmentation")
