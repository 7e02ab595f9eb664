"""A built-in mechanism is one module and one line of the registry: two are added here."""

import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from regard import api
from regard.attention import config, registry
from regard.attention.contract import check
from regard.config import override, to_toml
from regard.errors import UserError
from regard.runs.recipe import Recipe
from tiny import BIOGRAPHIES, MODEL, STEPS, Command

MODULE = '''"""Sigmoid attention (Ramapuram et al., 2024)."""

from typing import Annotated, ClassVar

from msgspec import Meta

from regard.attention import reference
from regard.attention.config import AttentionConfig, LayerShape
from regard.attention.softmax import ScoreAttention
from regard.attention.config import SCORES
from regard.config import Config


class SigmoidConfig(AttentionConfig, Config, frozen=True, tag_field="kind", tag="logistic"):
    """Weights that don't compete."""

    time: ClassVar = "n²·d"
    state: ClassVar = "n·d"
    paper: ClassVar = "Ramapuram et al., 2024"
    supports: ClassVar = SCORES

    shift: Annotated[float, Meta(ge=0)] = 2.0
    """Subtracted from each score."""

    def build(self, shape: LayerShape) -> "Sigmoid":
        return Sigmoid(shift=self.shift)


class Sigmoid(ScoreAttention):
    """σ(q·k/√d − b)."""

    name = "logistic"

    def __init__(self, *, shift: float) -> None:
        super().__init__()
        self.shift = shift

    def reference(self, query, key, mask, bias):
        allowed = reference.allowed(query, key, mask)
        query, key = reference.pairs(query, key)
        scores = (query * key).sum(-1) / query.shape[-1] ** 0.5
        scores = scores if bias is None else scores + bias.double()
        return (1 / (1 + (self.shift - scores).exp())).where(allowed, 0.0)

    def normalize_scores(self, scores, allowed):
        weights = (scores - self.shift).sigmoid()
        return weights if allowed is None else weights.masked_fill(~allowed, 0.0)
'''

GATED_MODULE = '''"""A delta rule that erases by channel."""

from typing import ClassVar

from regard.attention.gated import LOG_DECAY, GatedRecurrence
from regard.attention.gates import Gate
from regard.attention.recurrence import Update
from regard.attention.recurrent_config import RecurrentConfig


class SplitDeltaConfig(RecurrentConfig, frozen=True, tag_field="kind", tag="split-delta"):
    """The delta rule with erasing per channel and a decay per head."""

    mechanism: ClassVar = "split_delta:SplitDelta"
    paper: ClassVar = "Nobody, 2026"


class SplitDelta(GatedRecurrence):
    """S_t = (I − k_t (b_t ⊙ k_t)ᵀ) e^log_decay S_(t−1) + k_t v_tᵀ."""

    name = "split-delta"
    gates = (LOG_DECAY, Gate("erase", "key"))

    def update(self, key, value, log_decay, erase):
        return Update(key, value, log_decay[..., None], erase * key)
'''
ADDED = {
    "logistic": ("sigmoid_attention", MODULE, "SigmoidConfig"),
    "split-delta": ("split_delta", GATED_MODULE, "SplitDeltaConfig"),
}
KINDS = pytest.mark.parametrize("kind", ADDED)


@pytest.fixture(autouse=True)
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write each module, and add its line."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for kind, (module, text, class_) in ADDED.items():
        (tmp_path / f"{module}.py").write_text(text, "utf-8")
        monkeypatch.setitem(config.BUILT_IN, kind, f"{module}:{class_}")
        monkeypatch.delitem(sys.modules, module, raising=False)
        import_module(module)


def test_it_is_configured_by_its_kind() -> None:
    recipe = override(Recipe(), ["model.attention.kind=logistic", "model.attention.shift=1"])
    assert '[model.attention]\nkind = "logistic"\nshift = 1.0\n' in to_toml(recipe)
    with pytest.raises(UserError, match=r"model\.attention\.shift: expected a number >= 0\.0"):
        override(recipe, ["model.attention.shift=-1"])


@KINDS
def test_it_keeps_the_contract_with_its_reference(kind: str) -> None:
    outcomes = list(check(registry.find(kind), dtype=torch.float64))
    assert [outcome for outcome in outcomes if outcome.failure] == []
    assert any(outcome.check == "equals its reference" for outcome in outcomes)


def test_errors_list_it() -> None:
    assert "logistic" in config.supporting("decoding")
    assert "logistic" not in config.supporting("dropout")
    assert "split-delta" in config.supporting("value_heads")


def test_the_command_line_lists_it(regard: Command) -> None:
    (line,) = (row for row in regard("attention", "list").out.splitlines() if "logistic" in row)
    assert "Weights that don't compete." in line
    assert "Ramapuram et al., 2024" in line


@KINDS
def test_a_model_with_it_trains(tmp_path: Path, kind: str) -> None:
    settings = [*MODEL, *STEPS, f"model.attention.kind={kind}"]
    api.pretrain(BIOGRAPHIES, out=tmp_path / "run", settings=settings, device="cpu")
    assert api.generate(api.load(tmp_path / "run", device="cpu"), ["Ada"], max_new_tokens=2)
