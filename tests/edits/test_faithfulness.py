"""Faithfulness: circuits are plain edits, CPR and CMD their formulas on held-out pairs."""

import numpy as np
import pytest
from test_effects import METRIC, metric

from regard import edits
from regard.edits.edit import Edits
from regard.edits.effects import effects
from regard.edits.faithfulness import Curve, faithfulness
from regard.edits.found import Cell
from regard.edits.sites import Site
from regard.errors import UserError
from tiny_edited import OTHER, TEXT, decoder_layer, family_run, mechanism_run


@pytest.mark.parametrize(
    ("family", "sites"),
    [("decoder, hybrid", "heads"), ("encoder-decoder", "layers"), ("fixed-window", "tokens")],
)
def test_a_circuit_is_the_clean_text_with_all_other_sites_corrupt(family: str, sites: str) -> None:
    run = family_run(family)
    found = faithfulness(run, TEXT, OTHER, metric=METRIC, sites=sites)
    for curve in (found.by_effect, found.by_size):
        n = len(curve.order)
        for k in (0, n // 2, n - 1, n):
            others = (edits.patch(x.site.name, OTHER, at=x.position) for x in curve.order[k:])
            expected = metric(run, TEXT, Edits(tuple(others)))
            assert curve.metric[0, k] == pytest.approx(expected, abs=1e-7)
        f = [one.value for one in curve.faithfulness]
        assert (f[0], f[-1]) == (0, 1)
        assert {cell.name for cell in curve.order} == {cell.name for cell in found.effects.cells}


def test_areas_are_trapezoids_of_the_mean_metric() -> None:
    site = Site("decoder.0.heads.0", "decoder.0.heads", 0, ("n", 4), "none")
    rows = np.array([[1.0, 4.0, 3.0], [-1.0, 4.0, 1.0]])  # on average 0, 4, 2: f = 0, 2, 1
    curve = Curve((Cell(site), Cell(site)), rows)
    assert [one.value for one in curve.faithfulness] == [0, 2, 1]
    assert curve.area.value == pytest.approx((0 + 2) / 4 + (2 + 1) / 4)
    assert curve.distance.value == pytest.approx((1 + 1) / 4 + (1 + 0) / 4)
    f = [(0, 1.5, 1), (0, 2.5, 1), (0, 2, 1)]  # of either pair twice, and of both
    areas = [sum(one[:-1]) / 4 + sum(one[1:]) / 4 for one in f]
    assert curve.area.low == pytest.approx(min(areas))
    assert curve.area.high == pytest.approx(max(areas))


def test_every_second_pair_orders_the_sites_and_the_others_measure() -> None:
    run = mechanism_run("gated-softmax")
    clean = [TEXT, "Ada was born in Rome", "Ada lives in Rome and Oslo"]
    corrupt = [OTHER, "Bob was born in Oslo", "Bob lives in Oslo and Rome"]
    found = faithfulness(run, clean, corrupt, metric=METRIC, by="attribution")
    chosen = effects(run, clean[::2], corrupt[::2], metric=METRIC, by=("attribution",))
    means = chosen.examples.mean(0)
    names = [cell.name for cell in chosen.cells]
    expected = [names[i] for i in np.argsort(-means)], [names[i] for i in np.argsort(-abs(means))]
    orders = ([cell.name for cell in x.order] for x in (found.by_effect, found.by_size))
    assert tuple(orders) == expected
    alone = faithfulness(run, clean[1], corrupt[1], metric=METRIC, sites=expected[1])
    assert found.by_size.metric.shape == (1, 5)
    assert found.by_size.metric[0, [0, -1]] == pytest.approx(alone.by_size.metric[0, [0, -1]])
    assert "1 held-out pair" in " ".join(found.lines())
    assert "by attribution" in " ".join(found.lines())
    assert found.figure().axes


def test_sites_without_an_effect_have_no_faithfulness() -> None:
    run = mechanism_run("softmax", n_layers=1)
    decoder_layer(run, 0).self_attention.o_proj.weight.data[:, :4] = 0
    with pytest.raises(UserError, match="the same with all sites and with none"):
        faithfulness(run, TEXT, OTHER, metric=METRIC, sites=["decoder.0.heads.0"])


def test_a_site_named_twice_is_one_site() -> None:
    run, names = mechanism_run("softmax"), ["decoder.0.heads.0", "decoder.1.heads.1"]
    once, twice = (
        faithfulness(run, TEXT, OTHER, metric=METRIC, sites=sites)
        for sites in (names, [*names, names[0]])
    )
    assert twice.rows() == once.rows()
    assert twice.cpr == once.cpr
