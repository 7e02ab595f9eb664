"""∂L/∂A of Hugging Face's models, against autograd through transformers' own eager attention."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_huggingface_intercept import assert_untouched
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import LlamaForCausalLM, PreTrainedModel

from regard.errors import UserError
from regard.explorer.attention_maps import choose
from regard.explorer.gradients import Gradient, gradient_norms, weight_gradients
from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.explorer.huggingface.intercept import intercept_huggingface
from regard.explorer.huggingface.loss import text_loss
from tiny_explored import IDS, PAIRED, TARGET, bart, gpt2, llama, t5, tiny_folder
from tiny_hugging_face import sharp, tiny_bert, tiny_gpt2

TEXT = "Ada was born"
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
    loss = partial(text_loss, model, special, **inputs_of(family))
    return weight_gradients(loss, partial(intercept_huggingface, model))


@DTYPES
@ALL
def test_gradients_are_those_of_eager_attention(
    family: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some models round their eager weights to float32; not here."""
    softmax = nn.functional.softmax
    monkeypatch.setattr(nn.functional, "softmax", lambda x, dim, dtype=None: softmax(x, dim))
    model = MODELS[family]().to(dtype).requires_grad_(False)
    found = gradients_of(model, family)
    assert_untouched(model)
    expected = expected_gradients(model.requires_grad_(True), family)
    assert len(found) == (6 if family in PAIRED else 2)
    for one, gradient in zip(found, expected, strict=False):
        assert one.gradient.dtype == dtype
        assert float(gradient.abs().max()) > 1e-4, "there is something to compare"
        assert_close(one.gradient, gradient, rtol=0, atol=CLOSE[dtype])


def test_a_model_without_a_head_and_a_text_of_one_token_are_refused() -> None:
    with pytest.raises(UserError, match="this is a GPT2Model, which has no head for it") as refused:
        text_loss(gpt2(), NONE, input_ids=IDS[:1])
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match="one token has no loss"):
        text_loss(tiny_gpt2(), NONE[:1], input_ids=IDS[:1, :1])


# From a text to scores of heads


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5", "bart"])
def test_gradients_of_a_text_score_its_heads(family: str, tmp_path: Path) -> None:
    """Models are opened with their heads; of an encoder–decoder, the encoder's map is the first."""
    folder = tiny_folder(tmp_path / family, family, head=family not in PAIRED)
    model = HuggingFaceModel.load(folder)
    first, *_ = model.attention_maps(TEXT)
    found, n = model.gradients(TEXT), len(first.keys)
    assert [one.weights.shape for one in found] == [(1, 4, n, n)] * 2
    norms = gradient_norms([found], first)
    assert (norms > 0).all()
    assert_close(gradient_norms([found], choose(first, [1], [3, 0])), norms[[7, 4]])


def test_a_head_whose_weights_are_missing_is_none(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "bert", "bert", head=True)
    place = folder / "model.safetensors"
    kept = {name: x for name, x in load_file(place).items() if "transform" not in name}
    save_file(kept, place, metadata={"format": "pt"})
    model = HuggingFaceModel.load(folder)
    assert model.attention_maps(TEXT)
    with pytest.raises(UserError, match="has no head for it"):
        model.gradients(TEXT)
