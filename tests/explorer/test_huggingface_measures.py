"""What runs are asked for, asked of models of Hugging Face: random tokens twice, and gradients."""

from pathlib import Path

import pytest
import torch
from test_huggingface_intercept import assert_untouched
from test_induction import with_weights
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BartModel

from regard.errors import UserError
from regard.explorer.attention_maps import choose
from regard.explorer.gradients import gradient_norms
from regard.explorer.head_scores import head_scores
from regard.explorer.huggingface.adapter import HuggingFaceModel, tokens_around
from regard.explorer.induction import attend_repeated_sequence, induction_scores
from tiny_explored import MAKERS, PAIRED, tiny_folder

TEXT = "Ada was born"
ALL = pytest.mark.parametrize("family", MAKERS)
AROUND = {
    "gpt2": ([], []),
    "bert": (["[CLS]"], ["[SEP]"]),
    **dict.fromkeys(("t5", "bart", "llama"), ([], ["</s>"])),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, HuggingFaceModel]:
    """One of each family, not to be changed."""
    path = tmp_path_factory.mktemp("models")
    return {family: HuggingFaceModel.load(tiny_folder(path / family, family)) for family in MAKERS}


@ALL
def test_the_same_tokens_come_twice(family: str, models: dict[str, HuggingFaceModel]) -> None:
    model = models[family]
    twice = attend_repeated_sequence(model, 6, seed=3)
    keys, begin, end = twice.map.keys, twice.tokens.start, twice.tokens.stop
    assert keys == twice.map.queries
    assert (list(keys[:begin]), list(keys[end:])) == AROUND[family]
    assert twice.map.second == begin + 6 == end - 6
    assert keys[begin : begin + 6] == keys[begin + 6 : end]
    assert keys == attend_repeated_sequence(model, 6, seed=3).map.keys
    assert keys != attend_repeated_sequence(model, 6, seed=4).map.keys


@ALL
def test_special_tokens_are_never_drawn(family: str, models: dict[str, HuggingFaceModel]) -> None:
    model = models[family]
    special = set(model.tokenizer.all_special_ids)
    assert special
    assert special.isdisjoint(model.regular_token_ids)
    assert special | set(model.regular_token_ids) == set(model.tokenizer.get_vocab().values())


def test_tokens_that_the_model_has_no_row_for_are_never_drawn(tmp_path: Path) -> None:
    model = HuggingFaceModel.load(tiny_folder(tmp_path / "llama", "llama"))
    model.tokenizer.add_tokens(["unheard"])
    assert len(model.tokenizer) - 1 not in model.regular_token_ids


@ALL
def test_it_reads_tokens_as_it_reads_texts(
    family: str, models: dict[str, HuggingFaceModel]
) -> None:
    """With what its tokenizer puts around; of an encoder–decoder, in the encoder."""
    model = models[family]
    before, after = tokens_around(model.tokenizer)
    ids = model.tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert model.tokenizer(TEXT)["input_ids"] == [*before, *ids, *after]
    one, begin = model.map_of_ids(ids)
    first = model.attention_maps(TEXT)[0]
    assert begin == len(before)
    assert one.keys == first.keys
    for layer, other in zip(one.layers, first.layers, strict=True):
        assert layer.name == other.name
        # Exact: the same operations on the same shapes.
        assert_close(layer.record.weights, other.record.weights, rtol=0, atol=0)
    assert head_scores([one]) == head_scores([first])
    assert_untouched(model.model)


@ALL
def test_planted_heads_are_found(family: str, models: dict[str, HuggingFaceModel]) -> None:
    """With and without tokens that begin and end the text."""
    twice = attend_repeated_sequence(models[family], 5)
    n = len(twice.map.keys)
    for behind, name in ((0, "duplicate twice"), (1, "induction twice")):
        planted = torch.eye(n)[(torch.arange(n) - 5 + behind).clamp(min=0)]
        for other, found in induction_scores(with_weights(twice, planted)).items():
            assert found.tolist() == [float(other == name)] * 8


def test_two_rows_must_fit_the_model(models: dict[str, HuggingFaceModel]) -> None:
    assert models["bert"].max_tokens == 14
    assert len(attend_repeated_sequence(models["bert"]).map.keys) == 16
    with pytest.raises(UserError, match=r"--random 8: .* context of 14 tokens; choose 1 to 7"):
        attend_repeated_sequence(models["bert"], 8)
    assert models["t5"].max_tokens is None
    assert len(attend_repeated_sequence(models["t5"]).map.keys) == 101


# Gradients


@pytest.fixture
def headed(tmp_path: Path) -> dict[str, Path]:
    """Folders of models that predict tokens."""
    kinds = {"gpt2": AutoModelForCausalLM, "bert": AutoModelForMaskedLM}
    for family, kind in kinds.items():
        folder = tiny_folder(tmp_path / family, family)
        kind.from_pretrained(folder).save_pretrained(folder)
    return {family: tmp_path / family for family in kinds}


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_a_model_is_opened_with_its_head(family: str, headed: dict[str, Path]) -> None:
    model = HuggingFaceModel.load(headed[family])
    assert type(model.model).__name__ in ("GPT2LMHeadModel", "BertForMaskedLM")
    (one,) = model.attention_maps(TEXT)
    norms = gradient_norms([model.gradients(TEXT)], one)
    assert norms.shape == (8,)
    assert (norms > 0).all()
    last = choose(one, [1], [3, 0])
    assert_close(gradient_norms([model.gradients(TEXT)], last), norms[[7, 4]])
    other = gradient_norms([model.gradients("in Rome")], one)
    assert_close(
        gradient_norms([model.gradients(TEXT), model.gradients("in Rome")], one),
        (norms + other) / 2,
    )


@pytest.mark.parametrize("family", sorted(PAIRED))
def test_what_an_encoder_decoder_writes_has_gradients(
    family: str, models: dict[str, HuggingFaceModel]
) -> None:
    """In the encoder, whose map is the first."""
    encoder, *_ = models[family].attention_maps(TEXT)
    found = models[family].gradients(TEXT)
    n = len(encoder.keys)
    assert [one.weights.shape for one in found] == [(1, 4, n, n)] * 2
    assert (gradient_norms([models[family].gradients(TEXT)], encoder) > 0).all()


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_without_a_head_there_are_none(family: str, models: dict[str, HuggingFaceModel]) -> None:
    with pytest.raises(UserError, match="has no head for it") as refused:
        models[family].gradients(TEXT)
    assert "\n" not in str(refused.value)


def test_a_head_whose_weights_are_missing_is_none(headed: dict[str, Path]) -> None:
    from safetensors.torch import load_file, save_file

    place = headed["bert"] / "model.safetensors"
    kept = {name: x for name, x in load_file(place).items() if "transform" not in name}
    save_file(kept, place, metadata={"format": "pt"})
    model = HuggingFaceModel.load(headed["bert"])
    assert model.attention_maps(TEXT)
    with pytest.raises(UserError, match="has no head for it"):
        model.gradients(TEXT)


def test_an_encoder_decoder_without_what_it_writes_with_is_refused(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "bart", "bart", tie_word_embeddings=False)
    BartModel.from_pretrained(folder).save_pretrained(folder)
    with pytest.raises(UserError, match="weights lack lm_head"):
        HuggingFaceModel.load(folder)
