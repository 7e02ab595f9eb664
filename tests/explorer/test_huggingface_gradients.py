"""∂L/∂A of Hugging Face's models, against autograd through transformers' own eager attention."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
import torch
from test_huggingface_intercept import ERRORS, assert_untouched, kernel_with
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import LlamaForCausalLM, PreTrainedModel

from regard.errors import UserError
from regard.explorer.gradients import Gradient
from regard.explorer.huggingface import intercept
from regard.explorer.huggingface.gradients import huggingface_gradients, text_loss
from regard.explorer.intercept import MismatchError
from tiny_explored import IDS, TARGET, bart, gpt2, llama, t5
from tiny_hugging_face import sharp, tiny_bert, tiny_gpt2

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-10}
"""Between two ways of computing, through two layers."""
SPECIAL = torch.tensor([True, *[False] * 6, True])
NONE = torch.zeros(8, dtype=torch.bool)


def llama_with_head() -> PreTrainedModel:
    config: Any = llama().config
    return sharp(LlamaForCausalLM(config), torch.float32)


MODELS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: tiny_gpt2(dtype=torch.float32),
    "llama": llama_with_head,
    "bert": lambda: tiny_bert(dtype=torch.float32),
    "t5": t5,
    "bart": bart,
}
ALL = pytest.mark.parametrize("family", MODELS)
PAIRED = {"t5", "bart"}


def inputs_of(family: str) -> dict[str, Tensor]:
    if family in PAIRED:
        return {"input_ids": IDS[:1], "decoder_input_ids": TARGET[:1]}
    return {"input_ids": IDS[:1]}


def expected_loss(family: str, logits: Tensor) -> Tensor:
    """−ln p of each token that is asked for, one by one."""
    shares = logits[0].log_softmax(-1)
    if family == "bert":
        return -torch.stack([shares[i, IDS[0, i]] for i in range(1, 7)]).mean()
    ids = TARGET[0] if family in PAIRED else IDS[0]
    return -torch.stack([shares[i - 1, ids[i]] for i in range(1, len(ids))]).mean()


def expected_gradients(model: Any, family: str) -> list[Tensor]:
    """What autograd says of the weights that eager attention returns."""
    model.set_attn_implementation("eager")
    out = model(**inputs_of(family), output_attentions=True)
    found = out.encoder_attentions if family in PAIRED else out.attentions
    for weights in found:
        weights.retain_grad()
    expected_loss(family, out.logits).backward()
    model.set_attn_implementation("sdpa")
    model.zero_grad()
    return [weights.grad for weights in found]


def gradients_of(model: PreTrainedModel, family: str) -> list[Gradient]:
    special = SPECIAL if family == "bert" else NONE
    return huggingface_gradients(model, special, **inputs_of(family))


@pytest.fixture
def in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some models round their eager weights to float32; not here."""
    softmax = nn.functional.softmax
    monkeypatch.setattr(nn.functional, "softmax", lambda x, dim, dtype=None: softmax(x, dim))


@pytest.mark.usefixtures("in_full")
@DTYPES
@ALL
def test_gradients_are_those_of_eager_attention(family: str, dtype: torch.dtype) -> None:
    model = MODELS[family]().to(dtype)
    found, expected = gradients_of(model, family), expected_gradients(model, family)
    assert len(found) == (6 if family in PAIRED else 2)
    for one, gradient in zip(found, expected, strict=False):
        assert one.gradient.dtype == dtype
        assert float(gradient.abs().max()) > 1e-4, "there is something to compare"
        assert_close(one.gradient, gradient, rtol=0, atol=CLOSE[dtype])


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_loss_is_the_model_s_own(family: str) -> None:
    model: Any = MODELS[family]()
    with torch.no_grad():
        own = model(input_ids=IDS[:1], labels=IDS[:1]).loss
        assert_close(text_loss(model, NONE, input_ids=IDS[:1]), own)


@ALL
def test_looking_for_gradients_leaves_no_trace(family: str) -> None:
    model, inputs = MODELS[family](), inputs_of(family)
    with torch.inference_mode():
        before = model(**inputs).logits
    model.requires_grad_(False)
    assert any((one.norm > 0).any() for one in gradients_of(model, family))
    assert_untouched(model)
    with torch.inference_mode():
        # Exact: the same operations on the same shapes.
        assert torch.equal(model(**inputs).logits, before)


@pytest.mark.parametrize(
    ("family", "error"),
    [*zip(MODELS, cycle(ERRORS), strict=False)],
)
def test_gradients_of_what_the_model_does_not_do_are_refused(
    family: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS[family]()
    monkeypatch.setattr(intercept, "sdpa_attention_forward", kernel_with(error))
    with pytest.raises(MismatchError):
        gradients_of(model, family)
    assert_untouched(model)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_without_a_head_and_a_text_of_one_token_are_refused() -> None:
    with pytest.raises(UserError, match="this is a GPT2Model, which has no head for it") as refused:
        huggingface_gradients(gpt2(), NONE, input_ids=IDS[:1])
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match="one token has no loss"):
        huggingface_gradients(tiny_gpt2(), NONE[:1], input_ids=IDS[:1, :1])
