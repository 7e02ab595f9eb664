"""A random text, read twice, by runs and by Hugging Face models."""

from dataclasses import replace

import pytest
import torch

from regard.errors import UserError
from regard.explorer.adapters import Adapter
from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.explorer.induction import attend_repeated_sequence, induction_scores
from regard.explorer.look import adapter_of
from tiny_explored import MAKERS, tiny_folder
from tiny_served import new_run

AROUND: dict[str, tuple[list[str], list[str]]] = {
    **dict.fromkeys(("run, decoder", "gpt2"), ([], [])),
    "run, encoder": (["<sep>"], []),
    "run, encoder-decoder": ([], []),
    "bert": (["[CLS]"], ["[SEP]"]),
    **dict.fromkeys(("t5", "bart", "llama"), ([], ["</s>"])),
}
"""The tokens before and after every text."""
ALL = pytest.mark.parametrize("family", AROUND)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Adapter]:
    """One of each family, not to be changed."""
    path = tmp_path_factory.mktemp("models")
    kinds = [name.removeprefix("run, ") for name in AROUND if name.startswith("run, ")]
    runs: dict[str, Adapter] = {f"run, {kind}": adapter_of(new_run(kind)) for kind in kinds}
    return runs | {
        family: HuggingFaceModel.load(tiny_folder(path / family, family)) for family in MAKERS
    }


@ALL
def test_the_same_tokens_come_twice(family: str, models: dict[str, Adapter]) -> None:
    model = models[family]
    twice = attend_repeated_sequence(model, 6, seed=3)
    keys, begin, end = twice.map.keys, twice.tokens.start, twice.tokens.stop
    assert keys == twice.map.queries
    assert (list(keys[:begin]), list(keys[end:])) == AROUND[family]
    assert twice.map.second == begin + 6 == end - 6
    assert keys[begin : begin + 6] == keys[begin + 6 : end]
    assert keys == attend_repeated_sequence(model, 6, seed=3).map.keys
    assert keys != attend_repeated_sequence(model, 6, seed=4).map.keys
    assert not {"□", "⁇"} & set(keys[begin:end])


@ALL
def test_planted_heads_are_found(family: str, models: dict[str, Adapter]) -> None:
    twice = attend_repeated_sequence(models[family], 5)
    n, layers = len(twice.map.keys), twice.map.layers
    for behind, name in ((0, "duplicate twice"), (1, "induction twice")):
        planted = torch.eye(n)[(torch.arange(n) - 5 + behind).clamp(min=0)]
        changed = [
            replace(
                one,
                record=replace(one.record, weights=planted.expand(1, len(one.heads), -1, -1)),
            )
            for one in layers
        ]
        sequence = replace(twice, map=replace(twice.map, layers=tuple(changed)))
        n_heads = sum(len(one.heads) for one in layers)
        for other, found in induction_scores(sequence).items():
            assert found.tolist() == [float(other == name)] * n_heads


def test_two_rows_must_fit_the_model(models: dict[str, Adapter]) -> None:
    assert models["bert"].max_tokens == 14
    assert len(attend_repeated_sequence(models["bert"]).map.keys) == 16
    for family, most in (("bert", 7), ("run, decoder", 16)):
        message = rf"--random {most + 1}: .* context of {2 * most} tokens; choose 1 to {most}"
        with pytest.raises(UserError, match=message):
            attend_repeated_sequence(models[family], most + 1)
    assert models["t5"].max_tokens is None
    assert len(attend_repeated_sequence(models["t5"]).map.keys) == 101
