"""Stacks of different layers, drawn from all mechanisms: each layer is as it is alone."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from test_packed_rows import BY_PLACE, SUPPORTING, require_equal
from torch import Tensor, nn

from regard.attention.backends import repeat_kv
from regard.attention.config import SoftmaxConfig, supporting
from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.attention.registry import find
from regard.attention.score_config import SynthesizerConfig
from regard.errors import UnsupportedError
from regard.explorer.intercept import capture_attention
from regard.models.builders import LanguageModel
from regard.models.ngram_config import NgramConfig
from regard.models.pattern import LayerConfig
from regard.models.transformer import Decoder
from regard.positions import Rotary
from regard.positions.config import AlibiConfig, NoPositionsConfig, RotaryConfig
from tiny_models import BLOCK, VOCABULARY, tiny_model
from tiny_recurrent import close

SIGNED = {"fourier", "favor-trigonometric"}
"""Mechanisms whose normalizers may be close to 0, so that errors grow."""
DECODING = [kind for kind in supporting("decoding") if kind not in SIGNED]
PACKING = [kind for kind in SUPPORTING if kind in DECODING and kind not in BY_PLACE]
IDS = torch.randint(VOCABULARY, (2, BLOCK), generator=torch.Generator().manual_seed(0))
CONVOLUTIONS = st.sampled_from(
    [{}, {"short_conv": 3}, {"short_conv": 3, "canon": "AC"}, {"canon": "D"}, {"canon": "ABCD"}]
)
checked = settings(
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def entries(kinds: list[str]) -> st.SearchStrategy[LayerConfig]:
    """Entries of any mechanism, with its example's options, and any field that it can have."""

    def of(kind: str) -> st.SearchStrategy[LayerConfig]:
        mechanism = find(kind)
        own: dict[str, st.SearchStrategy[Any]] = {
            "positions": st.sampled_from([None, NoPositionsConfig(), RotaryConfig(base=50.0)]),
            "n_heads": st.sampled_from([None, 2]),
            "head_dim": st.sampled_from([None, 8]),
            "d_ff": st.sampled_from([None, 8]),
            "gated": st.sampled_from([None, True]),
        }
        for feature, field, value in (
            ("kv_heads", "n_kv_heads", 2),
            ("qk_norm", "qk_norm", True),
            ("added_values", "value_embedding", True),
        ):
            if kind in supporting(feature):
                own[field] = st.sampled_from([None, value])
        if kind in supporting("window_size"):
            own["window"] = st.sampled_from([None, 1, 4])
        attention = mechanism.config(**mechanism.config.check_options)
        built = st.builds(LayerConfig, attention=st.just(attention), **own)
        if kind not in supporting("short_conv"):
            return built
        return st.builds(lambda one, more: replace(one, **more), built, CONVOLUTIONS)

    return st.sampled_from(kinds).flatmap(of)


def patterns(kinds: list[str]) -> st.SearchStrategy[tuple[LayerConfig, ...]]:
    return st.lists(entries(kinds), min_size=2, max_size=3).map(tuple)


def hybrid(pattern: tuple[LayerConfig, ...], **options: Any) -> LanguageModel:
    """A stack with n-grams, and with value residuals if all layers have values of one shape."""
    options |= {"positions": RotaryConfig(), "ngrams": NgramConfig(slots=50)}
    shapes = {(one.n_heads, one.head_dim, one.n_kv_heads, one.n_value_heads) for one in pattern}
    can = all(one.attention and one.attention.supported.has("added_values") for one in pattern)
    residual = can and len(shapes) == 1
    return tiny_model(n_layers=4, value_residual=residual, pattern=pattern, **options)


@checked
@given(patterns(DECODING), st.sampled_from([(1,) * BLOCK, (5, 1, 10), (BLOCK - 1, 1)]))
@torch.no_grad()
def test_decoding_gives_what_whole_rows_give(
    pattern: tuple[LayerConfig, ...], sizes: tuple[int, ...]
) -> None:
    body = hybrid(pattern).body
    assert isinstance(body, Decoder)
    states, parts = body.init_state(2, BLOCK), []
    for part in IDS.split(list(sizes), 1):
        hidden, states = body.extend(part, states)
        parts.append(hidden)
    assert close(torch.cat(parts, 1), body(IDS))


@checked
@given(patterns(DECODING))
@torch.no_grad()
def test_rows_of_unequal_length_are_decoded_as_alone(pattern: tuple[LayerConfig, ...]) -> None:
    model, lengths = hybrid(pattern), torch.tensor([3, 6])
    mask = torch.arange(6) < lengths[:, None]
    logits, states = model.extend(IDS[:, :6], model.init_state(2, 12), mask)
    states = states.reorder(torch.tensor([1, 0]))
    logits, states = model.extend(IDS[:, 6:7], states)
    for row, source in enumerate((1, 0)):
        alone = torch.cat([IDS[source, : lengths[source]], IDS[row, 6:7]])
        assert close(logits[row], model(alone[None])[0, -1])


@settings(parent=checked, max_examples=5)
@given(patterns(DECODING))
def test_the_state_is_the_sum_of_those_of_the_layers(pattern: tuple[LayerConfig, ...]) -> None:
    states = hybrid(pattern).init_state(2, BLOCK)
    assert states.bytes == states.last_ids.nbytes + sum(layer.bytes for layer in states.layers)


def test_a_layer_without_document_masks_is_named() -> None:
    body = hybrid((LayerConfig(), LayerConfig(attention=SynthesizerConfig()))).body
    assert isinstance(body, Decoder)
    with pytest.raises(UnsupportedError, match=r"^layer 1: synthesizer attention does not support"):
        body.require_documents()


@settings(parent=checked, max_examples=10)
@given(patterns(PACKING))
def test_packed_documents_are_as_apart(pattern: tuple[LayerConfig, ...]) -> None:
    require_equal(hybrid(pattern))


@checked
@given(patterns(DECODING))
@torch.no_grad()
def test_each_layer_shows_the_matrix_that_it_applies(pattern: tuple[LayerConfig, ...]) -> None:
    """The weights times the values are the mechanism's output, layer by layer."""
    model = hybrid(pattern)
    applied: list[tuple[Tensor, Tensor]] = []

    def note(_: nn.Module, inputs: Any, options: dict[str, Any], out: Tensor) -> None:
        written = options.get("gates", {}).get("write", 1.0)  # of gated-deltanet-2
        applied.append((written * inputs[2], out))

    for layer in model.body.layers:  # type: ignore[union-attr]
        layer.self_attention.attention.register_forward_hook(note, with_kwargs=True)
    for layer, (values, out) in zip(capture_attention(model, IDS), applied, strict=True):
        assert close(layer.weights @ repeat_kv(values, out.shape[1]), out)


def test_layers_of_different_widths_have_their_own_rotation() -> None:
    pattern = (LayerConfig(), LayerConfig(n_heads=2, head_dim=6), LayerConfig(n_heads=2))
    body = hybrid(pattern, n_heads=4, d_model=16).body
    assert isinstance(body, Decoder)
    turns = [rotary.turns for rotary in body.rotary if isinstance(rotary, Rotary)]
    assert [turn.shape[-1] for turn in turns] == [4, 6, 8]
    assert body.rotary_of == [0, 1, 2, 0]


def test_layers_of_one_kind_share_their_rotation() -> None:
    own = LayerConfig(positions=RotaryConfig(base=50.0))
    pattern = (LayerConfig(), own, LayerConfig(positions=NoPositionsConfig()))
    body = hybrid(pattern).body
    assert isinstance(body, Decoder)
    assert len(body.rotary) == 2
    assert body.rotary_of == [0, 1, None, 0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"attention": "linformer"}, "layer 1: linformer attention does not support causal masks"),
        ({"attention": "mamba2", "window": 4}, "layer 1: mamba2 attention does not support window"),
        ({"attention": "elu", "n_value_heads": 8}, "layer 1: elu attention does not support "),
    ],
)
def test_what_a_layer_cannot_do_is_refused_by_its_number(
    options: dict[str, Any], says: str
) -> None:
    attention = find(options.pop("attention")).config()
    with pytest.raises(UnsupportedError, match=says):
        hybrid((LayerConfig(), LayerConfig(attention=attention, **options)))


def test_a_bias_of_the_stack_is_for_all_its_layers() -> None:
    pattern = (LayerConfig(attention=SoftmaxConfig()), LayerConfig(attention=GatedDeltaNetConfig()))
    with pytest.raises(UnsupportedError, match="layer 1: gated-deltanet attention does not"):
        tiny_model(pattern=pattern, positions=AlibiConfig())
