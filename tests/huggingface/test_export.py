"""A folder that is imported and exported is the same model, for transformers and for us."""

import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Native
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import AutoTokenizer

from killed import require_repeatable
from regard.attention.config import SoftmaxConfig
from regard.attention.kernel_config import EluConfig
from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.attention.score_config import GatedSoftmaxConfig
from regard.decoding import generate_ids
from regard.errors import UserError
from regard.huggingface.convert.export import Exported, export_run
from regard.huggingface.convert.families import FAMILIES
from regard.huggingface.convert.folder import import_folder
from regard.models.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from regard.models.pattern import LayerConfig
from regard.positions.config import AlibiConfig, NoPositionsConfig, RotaryConfig, SinusoidalConfig
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.text.tokenizer import FILES, train_tokenizer
from tiny import BIOGRAPHIES
from tiny_folders import bert_pieces, gpt2_pieces, with_tokenizer
from tiny_hugging_face import CASES, tiny

EVERY_CASE = pytest.mark.parametrize(("family", "variant"), CASES)
ENDS = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
BERT = {role: f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
WORDS = ("bert", "distilbert")


def pieces_of(family: str) -> tuple[Native, dict[str, str]]:
    """A tokenizer, which puts around texts what the family's do, and its special tokens by role."""
    if family in WORDS:
        return with_ends(bert_pieces(), "[CLS]", "[SEP]", between="[SEP]"), BERT
    native, roles = gpt2_pieces(*ENDS.values()), ENDS | {"cls": "<s>", "sep": "</s>"}
    if family == "roberta":
        native = with_ends(native, "<s>", "</s>", between="</s> </s>")
    return native, roles


def with_ends(native: Native, begin: str, end: str, *, between: str) -> Native:
    native.post_processor = TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {between} $B:1 {end}:1",
        special_tokens=[(token, native.token_to_id(token)) for token in (begin, end)],
    )
    return native


def folder_of(path: Path, family: str, variant: str, **settings: Any) -> Path:
    """A model of a family with a tokenizer, and two rows of embeddings more than tokens."""
    native, roles = pieces_of(family)
    marks = {
        f"{role}_token_id": native.token_to_id(roles[role])
        for role in ("bos", "eos")
        if role in roles
    }
    if family != "roberta":  # whose positions depend on it
        marks["pad_token_id"] = native.token_to_id(roles["pad"])
    marks |= {"vocab_size": native.get_vocab_size() + 2}
    if family in ("t5", "bart"):
        marks["decoder_start_token_id"] = marks["eos_token_id"]
    tiny(family, variant, dtype=torch.float32, **marks, **settings).save_pretrained(path)
    return with_tokenizer(path, native, roles)


@torch.no_grad()
def their_logits(folder: Path, ids: Tensor) -> Tensor:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    kind: Any = getattr(transformers, config["architectures"][0])
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    target = {"decoder_input_ids": ids[:, :4]} if model.config.is_encoder_decoder else {}
    logits: Tensor = model(ids, **target).logits
    return logits


@EVERY_CASE
@pytest.mark.filterwarnings("ignore:.*_token_id is")
def test_import_export_and_import_keep_all(family: str, variant: str, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "source", family, variant)
    first = import_folder(source, tmp_path / "first")
    exported = export_run(Run.load(tmp_path / "first"), tmp_path / "exported")
    again = import_folder(tmp_path / "exported", tmp_path / "again")
    assert exported.model_type == family
    assert exported.dropped == []
    assert again.recipe == first.recipe
    assert again.tokenizer.special == first.tokenizer.special
    before, after = (load_file(tmp_path / run / "model.safetensors") for run in ("first", "again"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]), name
    kept, written = (
        load_file(tmp_path / one / "model.safetensors") for one in ("source", "exported")
    )
    for name in kept.keys() - set(first.origin["dropped"]):
        assert torch.equal(kept[name], written[name]), name
    for name in FILES:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    text = (tmp_path / "exported" / "tokenizer.json").read_bytes()
    assert text == (source / "tokenizer.json").read_bytes()
    ids = torch.arange(7, 21).view(2, 7)
    # Exact: the same operations on the same tensors.
    assert torch.equal(their_logits(source, ids), their_logits(tmp_path / "exported", ids))


@pytest.mark.parametrize("family", ["llama", "bert", "bart"])
@pytest.mark.filterwarnings("ignore:.*_token_id is")
def test_transformers_reads_the_tokenizer(family: str, tmp_path: Path) -> None:
    variant = next(variant for name, variant in CASES if name == family)
    run = import_folder(folder_of(tmp_path / "source", family, variant), tmp_path / "run")
    export_run(run, tmp_path / "exported")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "exported")
    for text in BIOGRAPHIES:
        assert theirs(text).input_ids == run.encode(text)[0]
    assert theirs.pad_token_id == run.tokenizer.special.pad
    if family == "bert":  # whose texts spell the mask
        assert theirs.mask_token_id in theirs(f"ada {theirs.mask_token}").input_ids


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.filterwarnings("ignore:.*_token_id is")
def test_weights_are_exported_in_their_own_type(dtype: torch.dtype, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "source", "llama", "plain")
    half = {n: x.to(dtype) for n, x in load_file(source / "model.safetensors").items()}
    save_file(half, source / "model.safetensors")
    export_run(import_folder(source, tmp_path / "run"), tmp_path / "exported")
    written = load_file(tmp_path / "exported" / "model.safetensors")
    assert written.keys() == half.keys()
    assert all(torch.equal(written[name], half[name]) for name in half)
    config = json.loads((tmp_path / "exported" / "config.json").read_text("utf-8"))
    assert config["dtype"] == str(dtype).removeprefix("torch.")


_GEMMA: dict[str, Any] = {
    "context_length": 16,
    "n_layers": 4,
    "n_heads": 2,
    "d_model": 8,
    "qkv_bias": False,
    "o_bias": False,
    "ff_bias": False,
    "gated": True,
    "activation": "gelu-tanh",
    "norm": "sandwich",
    "norm_type": "zero-centered-rms-norm",
    "scale_embeddings": True,
}
NEW = {
    "gpt2": DecoderConfig(context_length=16, n_layers=1, n_heads=2, d_model=8),
    "gpt_neox": DecoderConfig(
        context_length=16, n_layers=1, n_heads=2, d_model=8, d_ff=24, positions=RotaryConfig()
    ),
    "qwen3_next": DecoderConfig(
        context_length=16,
        n_layers=3,
        n_heads=2,
        d_model=8,
        head_dim=8,
        qkv_bias=False,
        o_bias=False,
        ff_bias=False,
        gated=True,
        activation="silu",
        norm_type="zero-centered-rms-norm",
        norm_eps=1e-6,
        qk_norm=True,
        attention=GatedSoftmaxConfig(),
        positions=RotaryConfig(dim=2),
        pattern=(
            LayerConfig(
                attention=GatedDeltaNetConfig(
                    output_gate=True, gate_activation="silu", norm_eps=1e-6, qk_norm_eps=1e-6
                ),
                short_conv=4,
                positions=NoPositionsConfig(),
                qk_norm=False,
                n_value_heads=4,
                repeat=2,
            ),
            LayerConfig(),
        ),
    ),
    "gemma2": DecoderConfig(**_GEMMA, positions=RotaryConfig(), logit_softcap=3.0),
    "gemma3_text": DecoderConfig(
        **_GEMMA,
        qk_norm=True,
        window=3,
        positions=RotaryConfig(),
        pattern=(LayerConfig(), LayerConfig(window=0, positions=RotaryConfig(base=1e6))),
    ),
    "bert": EncoderConfig(
        context_length=16, n_layers=1, n_heads=2, d_model=8, d_ff=24, norm="post", n_token_types=2
    ),
    "distilbert": EncoderConfig(
        context_length=16, n_layers=1, n_heads=2, d_model=8, d_ff=24, norm="post", norm_eps=1e-12
    ),
}
"""Architectures of models that were trained here."""


def trained_run(tmp_path: Path, config: Any, **options: Any) -> Run:
    imported = import_folder(folder_of(tmp_path / "source", "gpt2", "plain"), tmp_path / "own")
    model = structs.replace(config, **options)
    head = FAMILIES["bert" if isinstance(model, EncoderConfig) else "gpt2"].head
    recipe = structs.replace(imported.recipe, model=model, head=head)
    return Run.new(tmp_path / "trained", recipe, imported.tokenizer, {})


@pytest.mark.parametrize("family", NEW)
@pytest.mark.filterwarnings("ignore:.*_token_id is")
def test_a_model_of_ours_is_exported_as_the_family_it_is_like(family: str, tmp_path: Path) -> None:
    run = trained_run(tmp_path, NEW[family])
    run.model.eval()
    exported = export_run(run, tmp_path / "exported")
    assert exported.model_type == family
    ids = torch.arange(7, 21).view(2, 7)
    with torch.no_grad():
        ours = run.model(ids)
    theirs = their_logits(tmp_path / "exported", ids)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    again = import_folder(tmp_path / "exported", tmp_path / "again")
    with torch.no_grad():
        torch.testing.assert_close(again.model.eval()(ids), ours)


HYBRID = (LayerConfig(attention=EluConfig()), LayerConfig())
LLAMA: dict[str, Any] = {
    "qkv_bias": False,
    "o_bias": False,
    "ff_bias": False,
    "gated": True,
    "activation": "silu",
    "norm_type": "rms-norm",
    "positions": RotaryConfig(),
    "n_layers": 2,
}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"positions": AlibiConfig()}, "gpt2: model.positions.kind = 'alibi': gpt2 models have"),
    ({"positions": SinusoidalConfig()}, "gpt2: model.positions.kind = 'sinusoidal': gpt2"),
    ({"norm": "post"}, "gpt2: model.norm = 'post': gpt2 models have 'pre'"),
    ({"gated": True}, "gpt2: model.gated = True: gpt2 models have"),
    ({"attention": EluConfig()}, "gpt2: model.attention.kind = 'elu': gpt2 models have"),
    ({"attention": SoftmaxConfig(scaled=False), "qkv_bias": False}, "gpt2: model.qkv_bias = False"),
    ({"short_conv": 4}, "gpt2: model.short_conv = 4: gpt2 models have 0;"),
    ({"short_conv": 4, "window": 2}, "gpt2: model.window = 2: gpt2 models have 0, and 1 more;"),
    ({"short_conv": 4, **LLAMA}, "llama: model.short_conv = 4: llama models have 0;"),
    (
        {"pattern": HYBRID, **LLAMA},
        "llama: model.layers.0.attention.kind = 'elu': llama models have 'softmax';",
    ),
    (
        structs.asdict(NEW["qwen3_next"]) | {"norm_eps": 1e-5},
        "qwen3_next: model.layers.0.attention.norm_eps = 1e-06: qwen3_next models have 1e-05;",
    ),
]


@pytest.mark.parametrize(("options", "says"), REFUSED, ids=[says for _, says in REFUSED])
@pytest.mark.filterwarnings("ignore:.*_token_id is")
def test_what_no_family_has_is_refused_by_the_nearest(
    options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    """That with the fewest differences, and the first of them."""
    run = trained_run(tmp_path, NEW["gpt2"], **options)
    with pytest.raises(UserError) as refused:
        export_run(run, tmp_path / "exported")
    message = str(refused.value).removeprefix(str(run.path))
    assert f": no Hugging Face model is like this; the nearest is {says}" in message
    assert "\n" not in message
    assert len(message) < 260
    assert not (tmp_path / "exported").exists()


@pytest.mark.filterwarnings("ignore:.*_token_id is")
def test_a_pattern_in_a_pair_is_refused(tmp_path: Path) -> None:
    imported = import_folder(folder_of(tmp_path / "source", "bart", "plain"), tmp_path / "run")
    model = imported.recipe.model
    assert isinstance(model, EncoderDecoderConfig)
    encoder = structs.replace(model.encoder, pattern=(LayerConfig(window=2), LayerConfig()))
    recipe = structs.replace(imported.recipe, model=structs.replace(model, encoder=encoder))
    run = Run.new(tmp_path / "windows", recipe, imported.tokenizer, imported.origin)
    says = "bart: model.encoder.pattern: bart models have no layers of different kinds"
    with pytest.raises(UserError, match=says):
        export_run(run, tmp_path / "exported")


@pytest.mark.filterwarnings("ignore:.*_token_id is")
def test_sizes_may_be_written_out(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "head_dim": 4,
        "n_kv_heads": 2,
        "attention": SoftmaxConfig(scale_dim=4),
    }
    sizes |= {"n_layers": 2, "pattern": (LayerConfig(n_heads=2, n_kv_heads=2), LayerConfig())}
    run = trained_run(tmp_path, NEW["gpt2"], **sizes)
    assert export_run(run, tmp_path / "exported").model_type == "gpt2"


@pytest.mark.filterwarnings("ignore:.*_token_id is")
def test_a_family_is_chosen_by_name(tmp_path: Path) -> None:
    run = trained_run(tmp_path, NEW["gpt2"], **LLAMA)
    assert export_run(run, tmp_path / "any").model_type == "llama"
    assert export_run(run, tmp_path / "chosen", "mistral").model_type == "mistral"
    for name, says in {
        "qwen2": "isn't like qwen2: model.qkv_bias = False: qwen2 models have True",
        "t5": "isn't like t5: model.kind = 'decoder': t5 models are of another kind",
        "bert": "head.kind = 'lm': bert models have 'masked-lm'",
        "lama": "--family lama: no such family; there are: gpt2, .*; did you mean llama",
    }.items():
        with pytest.raises(UserError, match=says):
            export_run(run, tmp_path / "other", name)
        assert not (tmp_path / "other").exists()


@pytest.mark.filterwarnings("ignore:.*_token_id is")
def test_dropout_without_a_field_is_listed(tmp_path: Path) -> None:
    from_llama = import_folder(folder_of(tmp_path / "llama", "llama", "plain"), tmp_path / "run")
    model = structs.replace(from_llama.recipe.model, dropout=0.2)
    recipe = structs.replace(from_llama.recipe, model=model)
    run = Run.new(tmp_path / "more", recipe, from_llama.tokenizer, from_llama.origin)
    exported = export_run(run, tmp_path / "exported")
    assert exported.model_type == "llama"
    assert exported.dropped == ["model.dropout = 0.2"]


def test_a_folder_that_exists_is_not_touched(tmp_path: Path) -> None:
    run = trained_run(tmp_path, NEW["gpt2"])
    with pytest.raises(UserError, match="exists; choose another --out"):
        export_run(run, tmp_path)


def test_a_killed_export_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained_run(tmp_path / "run", NEW["gpt2"])
    (tmp_path / "exported").mkdir()

    def write(out: Path) -> Exported:
        return export_run(run, out)

    require_repeatable(write, "config.json", tmp_path / "exported", monkeypatch)


# The ids around a text


def small(name: str) -> Recipe:
    """A recipe whose model is tiny."""
    recipe = RECIPES[name]
    tiny = {"context_length": 64, "n_layers": 1, "n_heads": 2, "d_model": 16, "dropout": 0.0}
    fields = {k: x for k, x in tiny.items() if k in recipe.model.__struct_fields__}
    data = structs.replace(recipe.data, documents="lines")
    return structs.replace(recipe, model=structs.replace(recipe.model, **fields), data=data)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Run, Path]]:
    """An untrained run of each recipe that a family is like, and its folder."""
    folder, found = tmp_path_factory.mktemp("exported"), {}
    for name in RECIPES:
        recipe = small(name)
        tokenizer = train_tokenizer(recipe.tokenizer, list(BIOGRAPHIES))
        torch.manual_seed(0)
        with suppress(UserError):
            run = Run.new(folder / f"{name}-run", recipe, tokenizer, {})
            run.model.eval()
            export_run(run, folder / name)
            found[name] = run, folder / name
    return found


def test_some_of_every_kind_of_recipe_is_exported(
    exported: dict[str, tuple[Run, Path]],
) -> None:
    """Encoders of ours have rotary positions, and encoder–decoders no relative ones."""
    assert {"course", "default", "demo", "memorization", "text", "gpt-small"} <= exported.keys()
    assert {"masked", "translation", "classification"}.isdisjoint(exported)


@cache
def tokenizer_of(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_transformers_gets_the_ids_of_the_run(
    exported: dict[str, tuple[Run, Path]], data: st.DataObject
) -> None:
    """The beginning of a text got lost, and its continuation was another."""
    name = data.draw(st.sampled_from(sorted(exported)))
    words = st.sampled_from(" ".join(BIOGRAPHIES).split())
    text = " ".join(data.draw(st.lists(words, min_size=1, max_size=8)))
    run, folder = exported[name]
    theirs = tokenizer_of(folder)
    assert theirs(text).input_ids == run.encode(text)[0]
    if run.recipe.uses_token_types:
        assert theirs(text, text).input_ids == run.encode(text, text)[0]


def test_greedy_texts_are_the_same(exported: dict[str, tuple[Run, Path]]) -> None:
    texts = [text for text in BIOGRAPHIES if len(text) < 30][:2]
    for run, folder in exported.values():
        if not run.recipe.continues_texts:
            continue
        tokenizer = tokenizer_of(folder)
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder)
        for text in texts:
            ids = tokenizer(text, return_tensors="pt")
            theirs = model.generate(**ids, max_new_tokens=8, do_sample=False)[0]
            (ours,) = generate_ids(
                run.language_model,
                [run.encode(text)[0]],
                max_new_tokens=8,
                stop_ids=run.tokenizer.special.stop_ids,
            )
            new = theirs[ids.input_ids.shape[1] :].tolist()
            assert new == ours.ids
            assert tokenizer.decode(new) == run.tokenizer.decode(new)
