"""Models of Hugging Face, opened from a folder and looked at."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_huggingface_intercept import assert_untouched
from torch.testing import assert_close
from transformers import AlbertConfig, AlbertModel, BartModel, GPT2LMHeadModel

import regard
from regard.errors import UserError
from regard.explorer.attention_maps import AttentionMap
from regard.explorer.head_scores import entropy
from regard.explorer.huggingface.adapter import HuggingFaceModel, tokens_around, tokens_as_text
from tiny import BIOGRAPHIES
from tiny_explored import MAKERS, PAIRED, tiny_folder
from tiny_folders import END, bert_folder, edit, gpt2_pieces, with_tokenizer

TEXT = "Ada Finch was born"
ALL = pytest.mark.parametrize("family", MAKERS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each family, not to be changed."""
    path = tmp_path_factory.mktemp("models")
    return {family: tiny_folder(path / family, family) for family in MAKERS}


@ALL
def test_each_family_opens_and_shows_its_attention(
    family: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    view = regard.look(HuggingFaceModel.load(folders[family]), TEXT)
    (panel,) = view.panels
    assert panel.name == family
    three = ["encoder", "decoder", "decoder to source"]
    assert [one.name for one in panel.maps] == (three if family in PAIRED else ["self-attention"])
    for one in panel.maps:
        assert [layer.name for layer in one.layers] == ["0", "1"]
        for layer in one.layers:
            assert layer.heads == (0, 1, 2, 3)
            assert layer.record.weights.shape[-2:] == (len(one.queries), len(one.keys))
    assert "".join(panel.maps[0].keys).lower().replace(" ", "").find("born") >= 0
    assert view.save(tmp_path / "x.html").read_text("utf-8").startswith("<!doctype html>")
    assert view.png(tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_decoders_show_their_most_probable_next_tokens(folders: dict[str, Path]) -> None:
    body: Any = HuggingFaceModel.load(folders["gpt2"])
    assert body.prediction(TEXT) is None
    decoder = replace(body, model=GPT2LMHeadModel(body.model.config).eval())
    found = decoder.prediction(TEXT)
    ids = torch.tensor([decoder.tokenizer(TEXT)["input_ids"]])
    model: Any = decoder.model
    with torch.no_grad():
        best = model(ids).logits[0, -1].softmax(-1).topk(5)
    assert found is not None
    names, probabilities = zip(*found.candidates, strict=True)
    assert list(names) == tokens_as_text(decoder.tokenizer, best.indices.tolist())
    assert list(probabilities) == pytest.approx(best.values.tolist(), rel=1e-5)
    for family in ("bert", *PAIRED):
        assert HuggingFaceModel.load(folders[family]).prediction(TEXT) is None


def maps_of(folder: Path, text: str, second: str | None = None) -> tuple[AttentionMap, ...]:
    return HuggingFaceModel.load(folder).attention_maps(text, second)


def test_layers_that_share_their_weights_are_counted(folders: dict[str, Path]) -> None:
    """An ALBERT calls one layer again and again."""
    config = AlbertConfig(vocab_size=90, hidden_size=16, intermediate_size=24, embedding_size=8)
    config.num_hidden_layers, config.num_attention_heads = 3, 2
    tokenizer = HuggingFaceModel.load(folders["bert"]).tokenizer
    model = HuggingFaceModel("albert", AlbertModel(config).eval(), tokenizer)
    (one,) = model.attention_maps(TEXT)
    assert [layer.name for layer in one.layers] == ["0", "1", "2"]


def test_tokens_are_shown_as_text(folders: dict[str, Path]) -> None:
    (one,) = maps_of(folders["gpt2"], "Ada was né")
    assert " was" in one.keys
    assert "".join(one.keys[:-2]) == "Ada was n"
    assert one.keys[-2:] == ("Ã", "©"), "a part of a character is no text"
    (one,) = maps_of(folders["llama"], "was born")
    assert "".join(one.keys) == " was born</s>", "with the spaces of SentencePiece"


def test_two_texts_are_parted_where_the_second_begins(folders: dict[str, Path]) -> None:
    (one,) = maps_of(folders["bert"], "was born", "in Rome")
    assert one.second is not None
    assert one.keys[0] == "[CLS]"
    assert one.keys[one.second - 1] == "[SEP]"
    assert one.keys[-1] == "[SEP]"
    assert "".join(one.keys[one.second : -1]).replace("##", "") == "inrome"
    for second in (None, " "):
        (alone,) = maps_of(folders["bert"], "was born", second)
        assert alone.second is None, "there is no second token"


@pytest.mark.parametrize("family", sorted(PAIRED))
def test_a_target_is_read_behind_what_begins_it(family: str, folders: dict[str, Path]) -> None:
    model = HuggingFaceModel.load(folders[family])
    _, own, across = model.attention_maps(TEXT, "in Rome")
    ids = model.tokenizer(text_target="in Rome")["input_ids"]
    start = model.model.config.decoder_start_token_id
    expected = tokens_as_text(model.tokenizer, [start, *ids[:-1]])
    assert list(own.queries) == list(own.keys) == list(across.queries) == expected
    assert across.keys[-1] == "</s>"


@pytest.mark.parametrize("family", sorted(PAIRED))
def test_without_a_target_it_is_what_the_model_writes(
    family: str, folders: dict[str, Path]
) -> None:
    """At each place but the last, the model's choice is the token that follows."""
    model = HuggingFaceModel.load(folders[family])
    source, _ = model._encode(TEXT, None)
    target = model._generated(source)
    assert target.shape[1] > 1
    with torch.inference_mode():
        logits = model.model(**source, decoder_input_ids=target).logits[0]
    assert torch.equal(logits.argmax(-1)[:-1], target[0, 1:])


# T5 draws its weights so that scores, which it doesn't divide by √d, have variance 1: some ½ nat
# below uniform, of the ln 16 = 2.8 that there are (transformers, T5PreTrainedModel._init_weights).
NEAR_UNIFORM = dict.fromkeys(MAKERS, 0.95) | {"t5": 0.8}


@ALL
def test_an_untrained_model_looks_everywhere_alike(family: str, folders: dict[str, Path]) -> None:
    model = HuggingFaceModel.load(folders[family])
    random = torch.random.get_rng_state()
    fresh = model.untrained()
    assert torch.equal(torch.random.get_rng_state(), random)
    assert fresh.name == f"{family}, untrained"
    assert mean_entropy(model) < 0.85, "the tests' own models are sharp"
    assert mean_entropy(fresh) >= NEAR_UNIFORM[family]
    again = model.untrained()
    assert all(map(torch.equal, fresh.model.parameters(), again.model.parameters()))
    assert not all(
        map(torch.equal, fresh.model.parameters(), model.untrained(seed=1).model.parameters())
    )


def mean_entropy(model: HuggingFaceModel) -> float:
    """Over heads, of attention to the text itself."""
    one = model.attention_maps(" ".join(BIOGRAPHIES[:1]))[0]
    weights = torch.cat([layer.record.weights[0] for layer in one.layers])
    return float(entropy(weights, causal=not bool(weights.triu(1).any())).mean())


# Tokens as input


@ALL
def test_special_tokens_are_never_drawn(family: str, folders: dict[str, Path]) -> None:
    model = HuggingFaceModel.load(folders[family])
    special = set(model.tokenizer.all_special_ids)
    assert special
    assert special.isdisjoint(model.regular_token_ids)
    assert special | set(model.regular_token_ids) == set(model.tokenizer.get_vocab().values())
    model.tokenizer.add_tokens(["unheard"])
    assert len(model.tokenizer) - 1 not in model.regular_token_ids, "the model has no row for it"


@ALL
def test_it_reads_tokens_as_it_reads_texts(family: str, folders: dict[str, Path]) -> None:
    """With what its tokenizer puts around; of an encoder–decoder, in the encoder."""
    model = HuggingFaceModel.load(folders[family])
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
    assert_untouched(model.model)


# What can't be opened or read


def refusal(folder: Path | str) -> str:
    with pytest.raises(UserError) as refused:
        HuggingFaceModel.load(folder)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A GPT-2's folder, to be broken."""
    return tiny_folder(tmp_path / "own", "gpt2")


@pytest.mark.usefixtures("offline")
def test_a_name_that_is_nowhere_is_refused() -> None:
    for name in ["nowhere", "no/such/folder", "someone/some-model", "~nobody/x", ""]:
        assert "hf:" + name in refusal(name)


def test_without_the_package_the_way_to_get_it_is_told(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "pip install 'regard[hf]'" in refusal(own)


def lose_a_layer(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    kept = {name: x for name, x in tensors.items() if "h.1.attn.c_attn" not in name}
    save_file(kept, folder / WEIGHTS, metadata={"format": "pt"})


def name_own_code(folder: Path) -> None:
    code = folder / "modeling_own.py"
    code.write_text("raise SystemExit('run!')", encoding="utf-8")
    auto = {"AutoConfig": "modeling_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"}
    edit(folder / "config.json", model_type="own", auto_map=auto)


WEIGHTS = "model.safetensors"
BROKEN: dict[str, Callable[[Path], object]] = {
    "has no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "tokenizer can't be loaded": lambda folder: (folder / "tokenizer.json").write_text("{}"),
    "is a pickle": lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"),
    "no model.safetensors": lambda folder: (folder / WEIGHTS).unlink(),
    "model can't be loaded": lambda folder: (folder / WEIGHTS).write_bytes(b"nothing"),
    "lack h.1.attn.c_attn.bias": lose_a_layer,
    "needs custom code": name_own_code,
    "model_type own is unknown": lambda folder: edit(folder / "config.json", model_type="own"),
}
"""Message → what makes the folder of a model so."""


def test_an_encoder_decoder_without_what_it_writes_with_is_refused(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "bart", "bart", tie_word_embeddings=False)
    BartModel.from_pretrained(folder).save_pretrained(folder)
    assert "weights lack lm_head" in refusal(folder)


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_folder_is_refused(message: str, own: Path) -> None:
    BROKEN[message](own)
    assert message in refusal(own)


def test_a_tokenizer_that_is_not_the_model_s_is_named_in_one_line(tmp_path: Path) -> None:
    """Byte pairs, which transformers reads as a BERT's word pieces without an unk token."""
    folder = bert_folder(tmp_path / "bert", gpt2_pieces())
    with_tokenizer(folder, gpt2_pieces(), {"unk": END})
    message = r"^hf:bert: its tokenizer can't read the text \(.*UNK.*\); choose another text"
    with pytest.raises(UserError, match=message) as refused:
        regard.look(HuggingFaceModel.load(folder), TEXT)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("family", ["gpt2", "bart"])
def test_a_text_that_is_too_long_or_none_is_refused(family: str, folders: dict[str, Path]) -> None:
    model = HuggingFaceModel.load(folders[family])
    for text, message in (
        ("Ada Finch was born in Rome. " * 9, "model's context length of 16"),
        ("", "is empty"),
        ("\ud800", "valid Unicode"),
    ):
        with pytest.raises(UserError, match=message):
            regard.look(model, text)
    if family == "bart":
        with pytest.raises(UserError, match="the second text has"):
            regard.look(model, "Ada", "Ada Finch was born in Rome. " * 9)


def test_a_name_in_the_cache_is_opened_without_the_network(
    folders: dict[str, Path], offline: Path
) -> None:
    """The cache's own layout: a folder of snapshots, and a file that names the newest."""
    place = offline / "models--someone--some-model"
    (place / "snapshots").mkdir(parents=True)
    (place / "snapshots" / ("a" * 40)).symlink_to(folders["gpt2"])
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("a" * 40, encoding="utf-8")
    model = HuggingFaceModel.load("someone/some-model")
    assert model.name == "someone/some-model"
    assert model.attention_maps(TEXT)[0].layers


ROLES = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>"}
PIECES = gpt2_pieces(*ROLES.values())


def loaded(model: transformers.PreTrainedModel, folder: Path) -> HuggingFaceModel:
    model.save_pretrained(folder)
    return HuggingFaceModel.load(with_tokenizer(folder, PIECES, ROLES))


def test_positions_of_roberta_begin_behind_those_of_pads(tmp_path: Path) -> None:
    config = transformers.RobertaConfig(
        vocab_size=PIECES.get_vocab_size(),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=18,
        pad_token_id=1,
    )
    model = loaded(transformers.RobertaForMaskedLM(config), tmp_path)
    assert model.context_length == 16
    with pytest.raises(UserError, match="more than the model's context length of 16"):
        model.attention_maps("x" * 17)


def test_a_target_is_read_where_transformers_does_not_shift_it(tmp_path: Path) -> None:
    config = transformers.BlenderbotConfig(
        vocab_size=PIECES.get_vocab_size(),
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        decoder_start_token_id=PIECES.token_to_id("<s>") or 0,
        eos_token_id=PIECES.token_to_id("</s>"),
        forced_eos_token_id=None,
        pad_token_id=PIECES.token_to_id("<pad>"),
    )
    model = loaded(transformers.BlenderbotForConditionalGeneration(config), tmp_path)
    maps = model.attention_maps("ada", "in Rome")
    assert [one.name for one in maps] == ["encoder", "decoder", "decoder to source"]
