"""A built-in mechanism is one module and one line of the registry: one is added here."""

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

MODULE = '''"""A delta rule that erases by channel."""

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


@pytest.fixture(autouse=True)
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the module, and add its line."""
    (tmp_path / "split_delta.py").write_text(MODULE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(config.BUILT_IN, "split-delta", "split_delta:SplitDeltaConfig")
    monkeypatch.delitem(sys.modules, "split_delta", raising=False)
    import_module("split_delta")


def test_it_is_configured_by_its_kind() -> None:
    recipe = override(
        Recipe(), ["model.attention.kind=split-delta", "model.attention.norm_eps=0.5"]
    )
    lines = to_toml(recipe).splitlines()
    assert 'kind = "split-delta"' in lines
    assert "norm_eps = 0.5" in lines
    with pytest.raises(UserError, match=r"model\.attention\.norm_eps: expected a number > 0\.0"):
        override(recipe, ["model.attention.norm_eps=-1"])


def test_it_keeps_the_contract_with_its_reference() -> None:
    outcomes = list(check(registry.find("split-delta"), dtype=torch.float64))
    assert [outcome for outcome in outcomes if outcome.failure] == []
    assert any(outcome.check == "equals its reference" for outcome in outcomes)


def test_errors_and_the_command_line_list_it(regard: Command) -> None:
    assert "split-delta" in config.supporting("value_heads")
    assert "split-delta" not in config.supporting("dropout")
    (line,) = (row for row in regard("attention", "list").out.splitlines() if "split-delta" in row)
    assert "The delta rule with erasing per channel" in line
    assert "Nobody, 2026" in line


def test_a_model_with_it_trains(tmp_path: Path) -> None:
    settings = [*MODEL, *STEPS, "model.attention.kind=split-delta"]
    api.pretrain(BIOGRAPHIES, out=tmp_path / "run", settings=settings, device="cpu")
    assert api.generate(api.load(tmp_path / "run", device="cpu"), ["Ada"], max_new_tokens=2)
