"""What a Hugging Face model applied is what its eager attention returns, or it is refused."""

from functools import partial
from itertools import cycle, product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BloomConfig, BloomModel, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from regard.errors import UserError
from regard.explorer.huggingface import intercept
from regard.explorer.huggingface.intercept import intercept_huggingface
from regard.explorer.intercept import AttentionRecord, MismatchError, recorded, score_steps
from tiny_explored import MAKERS, PAIRED, TARGET, gpt2, inputs_of, real_tokens

ALL = pytest.mark.parametrize("family", MAKERS)
CLOSE = 1e-5
"""Between two ways of computing in float32, through two layers."""


@torch.inference_mode()
def capture_huggingface(model: PreTrainedModel, **inputs: Tensor) -> list[AttentionRecord]:
    """The attention of each layer, first to last."""
    with recorded(partial(intercept_huggingface, model)) as records:
        model(**inputs)
    return records


@torch.inference_mode()
def eager(model: PreTrainedModel, inputs: dict[str, Tensor]) -> dict[str, tuple[Tensor, ...]]:
    """What transformers itself returns as attention, by kind."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    found = model(**inputs, output_attentions=True)
    model.set_attn_implementation(before)
    names = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    return {name: found[name] for name in names if found.get(name)}


def by_kind(captured: list[AttentionRecord], family: str) -> dict[str, tuple[Tensor, ...]]:
    """The same of what was captured, by its place: a decoder's layers attend twice each."""
    weights = tuple(one.weights for one in captured)
    if family not in PAIRED:
        return {"attentions": weights}
    return {
        "encoder_attentions": weights[:2],
        "decoder_attentions": weights[2::2],
        "cross_attentions": weights[3::2],
    }


@ALL
@pytest.mark.parametrize("side", ["right", "left"])
def test_captured_weights_are_the_eager_ones(family: str, side: str) -> None:
    model, inputs = MAKERS[family](), inputs_of(family, side)
    found = by_kind(capture_huggingface(model, **inputs), family)
    expected = eager(model, inputs)
    assert expected.keys() == found.keys()
    real = real_tokens(side).bool()
    for kind, layers in expected.items():
        # What padding itself looks at means nothing, and differs between the two.
        asked = real if "decoder" not in kind and "cross" not in kind else TARGET >= 0
        for one, other in zip(found[kind], layers, strict=True):
            difference = (one - other).abs().amax((1, 3))
            assert float(difference[asked].max()) <= CLOSE
            hidden = ~(TARGET if kind == "decoder_attentions" else real).bool()
            assert not one.transpose(1, 3)[hidden].any(), "nobody looks at padding"


def test_a_mask_that_is_added_to_scores_is_a_bias_too() -> None:
    model, ids = gpt2(), inputs_of("gpt2")["input_ids"]
    generator = torch.Generator().manual_seed(0)
    added = torch.randn(2, 1, 8, 8, generator=generator)
    added = added.masked_fill(torch.ones(8, 8).triu(1).bool(), torch.finfo(torch.float32).min)
    inputs = {"input_ids": ids, "attention_mask": added}
    captured = capture_huggingface(model, **inputs)
    for one, other in zip(captured, eager(model, inputs)["attentions"], strict=True):
        torch.testing.assert_close(one.weights, other, rtol=0, atol=CLOSE)
        names = [name for name, _ in score_steps(one, 1, 2)]
        assert names == ["q·k", "÷ √d", "+ position", "masked", "weight"]


@ALL
def test_the_steps_end_in_the_weights(family: str) -> None:
    for captured in capture_huggingface(MAKERS[family](), **inputs_of(family)):
        for row, head in ((0, 0), (1, 3)):
            found = dict(score_steps(captured, row, head))
            *_, (_, last), (_, weight) = found.items()
            torch.testing.assert_close(last.softmax(-1), weight, rtol=0, atol=CLOSE)
            assert ("÷ √d" in found) == (family != "t5")
            biased = family == "t5" and "EncDec" not in captured.layer
            assert ("+ position" in found) == biased


def test_a_scale_of_its_own_is_named() -> None:
    model = gpt2(scale_attn_by_inverse_layer_idx=True)
    first, second = capture_huggingface(model, **inputs_of("gpt2"))
    assert "÷ √d" in dict(score_steps(first, 0, 0))
    assert "× 0.25" in dict(score_steps(second, 0, 0))


# Planted errors


def kernel_with(error: str) -> Any:
    """A kernel that doesn't do what its inputs say."""

    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **settings: Any,
    ) -> Any:
        if error == "mask dropped":
            attention_mask, settings["is_causal"] = None, False
        if error == "scale wrong":
            settings["scaling"] = 2 * settings["scaling"]
        if error == "heads mispaired":
            key = key.roll(1, dims=1)
        if error == "bias dropped":
            settings["position_bias"] = None
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)

    return attend


ERRORS = ["mask dropped", "scale wrong", "heads mispaired"]


@pytest.mark.parametrize(
    ("family", "error"),
    [
        *zip(MAKERS, cycle(ERRORS), strict=False),
        ("llama", "heads mispaired"),
        ("t5", "bias dropped"),
    ],
)
def test_a_wrong_picture_is_refused_and_the_model_is_as_it_was(
    family: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MAKERS[family]()
    monkeypatch.setattr(intercept, "sdpa_attention_forward", kernel_with(error))
    with pytest.raises(MismatchError, match="0"):
        capture_huggingface(model, **inputs_of(family))
    assert_untouched(model)


def assert_untouched(model: PreTrainedModel, name: str = "sdpa") -> None:
    for module in model.modules():
        assert intercept._HANDLER not in vars(module)
        if isinstance(module, PreTrainedModel):
            assert module.config._attn_implementation == name


@pytest.mark.parametrize(
    ("family", "name"), [*product(MAKERS, ["sdpa"]), ("gpt2", "eager"), ("bart", "eager")]
)
def test_looking_changes_nothing(family: str, name: str) -> None:
    model, inputs = MAKERS[family](), inputs_of(family)
    model.set_attn_implementation(name)
    with torch.inference_mode():
        before = model(**inputs)[0]
        capture_huggingface(model, **inputs)
        # Exact: the same operations on the same shapes.
        assert torch.equal(model(**inputs)[0], before)
    assert_untouched(model, name)


def test_a_model_whose_kernel_cannot_be_replaced_is_refused() -> None:
    config = BloomConfig(vocab_size=23, hidden_size=16, n_layer=1, n_head=2, bos_token_id=1)
    model = BloomModel(config).eval()
    before = model.config._attn_implementation
    with pytest.raises(
        UserError, match="attention of bloom models can't be intercepted"
    ) as refusal:
        capture_huggingface(model, **inputs_of("bloom"))
    assert "\n" not in str(refusal.value)
    assert_untouched(model, before)


def test_what_torch_s_kernel_cannot_do_is_refused() -> None:
    x = torch.zeros(1, 1, 1, 1)
    with pytest.raises(UserError, match="softcap"):
        intercept._attend(nn.Identity(), x, x, x, None, softcap=50.0)
