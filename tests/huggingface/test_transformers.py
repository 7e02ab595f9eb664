"""Runs in transformers: the same logits, and the same output of `generate`."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DynamicCache,
    GenerationConfig,
    GenerationMixin,
    pipeline,
)

import regard.huggingface.transformers
from regard.config import override
from regard.data.batch import lengths_of, pad_rows
from regard.decoding.beam_search import search_ids
from regard.decoding.generate import generate_ids
from regard.errors import UserError
from regard.huggingface.transformers.generation import UNSUPPORTED
from regard.models.builders import SequenceToSequence
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.text.tokenizer import train_tokenizer
from tiny import MODEL

PROMPTS = ([5, 6, 7], [8], [9, 4, 3, 2, 6])
NEW = 6
REFUSED = {
    *("penalty_alpha", "dola_layers", "num_beam_groups", "constraints", "force_words_ids"),
    *("custom_generate", "assistant_model", "prompt_lookup_num_tokens", "use_mtp"),
    *("guidance_scale", "cache_implementation", "output_attentions", "token_healing"),
    "prefill_chunk_size",
}
"""Options of generation that no run supports; there may be more."""

CAUSAL = {
    "learned": ("model.positions.kind=learned",),
    "rotary, grouped": ("model.positions.kind=rotary", "model.n_kv_heads=1", "model.tie_head=true"),
    "sinusoidal": ("model.positions.kind=sinusoidal",),
    "kernel": ("model.attention.kind=elu",),
    "window": ("model.window=3",),
    "recurrence": ("model.attention.kind=gated-deltanet", "model.short_conv=3"),
    "beside attention": ("model.canon=ABCD", "model.ngrams.slots=50", "model.value_embedding=true"),
}


def saved(
    path: Path,
    *settings: str,
    recipe: str = "default",
    base: Sequence[str] = (*MODEL, "model.dropout=0.0"),
    scale: float = 8.0,
) -> Run:
    """A run with weights so large that every part matters."""
    chosen = override(RECIPES[recipe], [*base, *settings])
    tokenizer = train_tokenizer(chosen.tokenizer, ["Ada was born in Oslo."])
    run = Run.new(path, chosen, tokenizer, {"stage": "none"})
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.mul_(scale)
    run.save_description()
    run.save_weights()
    run.model.eval()
    return run


def left_padded(rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    n = max(map(len, rows))
    ids = [[0] * (n - len(row)) + list(row) for row in rows]
    mask = [[0] * (n - len(row)) + [1] * len(row) for row in rows]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def right_padded(rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    ids = pad_rows(rows, 0)
    real = torch.arange(ids.shape[1]) < lengths_of(rows)[:, None]
    return {"input_ids": ids, "attention_mask": real.long()}


def new_ids(out: Tensor, begin: int, stops: Sequence[int]) -> list[list[int]]:
    """The new tokens of each row, up to the one that ends it."""
    rows = [row[begin:] for row in out.tolist()]
    ends = [next((i for i, t in enumerate(row) if t in stops), len(row)) for row in rows]
    return [row[:end] for row, end in zip(rows, ends, strict=True)]


@pytest.mark.parametrize("case", CAUSAL)
def test_a_causal_run_has_the_same_logits_with_padding_on_either_side(
    tmp_path: Path, case: str
) -> None:
    run = saved(tmp_path / "run", *CAUSAL[case])
    model: Any = AutoModelForCausalLM.from_pretrained(run.path, dtype=torch.float64)
    run.model.double()
    both = (left_padded(PROMPTS), right_padded(PROMPTS))
    with torch.inference_mode():
        left_out, right_out = (model(**inputs).logits for inputs in both)
        for row, prompt in enumerate(PROMPTS):
            own = run.model(torch.tensor([prompt]))[0]
            # Up to some hundred roundings of float64.
            torch.testing.assert_close(left_out[row, -len(prompt) :], own, rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(right_out[row, : len(prompt)], own, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("case", "options"),
    [
        *((case, {}) for case in CAUSAL),
        *((case, {"num_beams": 4, "early_stopping": "never"}) for case in CAUSAL),
        ("learned", {"use_cache": False}),
    ],
)
def test_generation_from_padded_prompts_equals_ours(
    tmp_path: Path, case: str, options: dict[str, Any]
) -> None:
    beams = options.get("num_beams", 1)
    run = saved(tmp_path / "run", *CAUSAL[case], scale=8.0 if beams == 1 else 3.0)
    stops = run.tokenizer.special.stop_ids
    rules: dict[str, Any] = {"max_new_tokens": NEW, "stop_ids": stops}
    if beams == 1:
        own = [row.ids for row in generate_ids(run.language_model, PROMPTS, **rules)]
    else:
        found = search_ids(run.language_model, PROMPTS, beams=beams, **rules)
        own = [best.ids for best, *_ in found]
    model: Any = AutoModelForCausalLM.from_pretrained(run.path)
    for inputs in (left_padded(PROMPTS), right_padded(PROMPTS)):
        out = model.generate(**inputs, max_new_tokens=NEW, do_sample=False, **options)
        assert new_ids(out, 5, stops) == own


def test_sampled_sequences_continue_the_prompt_that_they_are_of(tmp_path: Path) -> None:
    run = saved(tmp_path / "run")
    model: Any = AutoModelForCausalLM.from_pretrained(run.path)
    out = model.generate(
        **left_padded(PROMPTS), max_new_tokens=2, do_sample=True, top_k=1, num_return_sequences=2
    )
    assert out[::2].tolist() == out[1::2].tolist()


def test_a_cache_continues_in_parts(tmp_path: Path) -> None:
    run = saved(tmp_path / "run")
    model: Any = AutoModelForCausalLM.from_pretrained(run.path, dtype=torch.float64)
    inputs = left_padded(PROMPTS)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    with torch.inference_mode():
        whole = model(ids, mask).logits
        first = model(ids[:, :3], mask[:, :3], use_cache=True)
        assert first.past_key_values.get_seq_length() == 3
        rest = model(ids[:, 3:], mask, past_key_values=first.past_key_values).logits
    real = mask[:, 3:].bool()
    # Up to some hundred roundings of float64.
    torch.testing.assert_close(rest[real], whole[:, 3:][real], rtol=1e-9, atol=1e-9)


def test_nothing_is_left_uninitialized(tmp_path: Path) -> None:
    """Tables that aren't saved (sinusoidal positions, rotary angles) are made by our loading."""
    run = saved(tmp_path / "run", "model.positions.kind=sinusoidal")
    model: Any = AutoModelForCausalLM.from_pretrained(run.path)
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    ours = dict(run.model.named_parameters()) | dict(run.model.named_buffers())
    for name, tensor in ours.items():
        assert tensors[f"model.{name}"].device.type == "cpu"
        assert torch.equal(tensors[f"model.{name}"], tensor)


TASKS: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "masked": (AutoModelForMaskedLM, "masked", ()),
    "masked, token types": (AutoModelForMaskedLM, "masked", ("model.n_token_types=2",)),
    "labels": (
        AutoModelForSequenceClassification,
        "classification",
        ('head.labels=["no","yes","maybe"]',),
    ),
    "labels by a decoder": (
        AutoModelForSequenceClassification,
        "classification",
        ('head.labels=["no","yes"]', "model.kind=decoder"),
    ),
    "labels of tokens": (
        AutoModelForTokenClassification,
        "tagging",
        ('head.labels=["noun","verb"]',),
    ),
}


@pytest.mark.parametrize("case", TASKS)
def test_other_heads_have_the_same_logits_with_padding_on_the_left(
    tmp_path: Path, case: str
) -> None:
    auto, recipe, settings = TASKS[case]
    run = saved(tmp_path / "run", *settings, recipe=recipe, scale=4.0)
    model: Any = auto.from_pretrained(run.path, dtype=torch.float64)
    run.model.double()
    with torch.inference_mode():
        out = model(**left_padded(PROMPTS)).logits
        for row, prompt in enumerate(PROMPTS):
            own: Any = run.model(torch.tensor([prompt]), lengths_of([prompt]))[0]
            found = out[row] if out.ndim == 2 else out[row, -len(prompt) :]
            # Up to some hundred roundings of float64.
            torch.testing.assert_close(found, own, rtol=1e-9, atol=1e-9)
    if "head.labels" in "".join(settings):
        labels: Any = run.recipe.head
        assert tuple(model.config.id2label.values()) == labels.labels


SEQ2SEQ = {
    "Transformer": (),
    "recurrent": ("model.kind=rnn-encoder-decoder",),
    "recurrent with attention": (
        "model.kind=rnn-encoder-decoder",
        "model.attention.kind=softmax",
    ),
}


@pytest.mark.parametrize("case", SEQ2SEQ)
@pytest.mark.parametrize("beams", [1, 3])
def test_targets_of_left_padded_sources_equal_ours(tmp_path: Path, case: str, beams: int) -> None:
    path = tmp_path / "run"
    run = saved_seq2seq(path, *SEQ2SEQ[case])
    special = run.tokenizer.special
    assert isinstance(run.model, SequenceToSequence)
    conditioned = run.model.condition(pad_rows(PROMPTS, 0), lengths_of(PROMPTS))
    starts = [[special.require("decoder_start_id")]] * len(PROMPTS)
    options: dict[str, Any] = {"max_new_tokens": NEW, "stop_ids": special.stop_ids}
    if beams == 1:
        found = [row.ids for row in generate_ids(conditioned, starts, **options)]
    else:
        found = [row[0].ids for row in search_ids(conditioned, starts, beams=beams, **options)]
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(path)
    out = model.generate(
        **left_padded(PROMPTS),
        max_new_tokens=NEW,
        num_beams=beams,
        do_sample=False,
        early_stopping="never" if beams > 1 else False,
    )
    assert new_ids(out, 1, special.stop_ids) == found


def saved_seq2seq(path: Path, *settings: str) -> Run:
    tiny = [s for s in MODEL if not s.startswith("model.")]
    sizes = ["model.n_layers=1", "model.d_model=16"]
    if not settings:
        stacks = ("n_layers=1", "n_heads=2", "d_model=16", "dropout=0.0")
        sizes = [f"model.{part}.{size}" for part in ("encoder", "decoder") for size in stacks]
    return saved(path, *settings, *sizes, recipe="casing", base=tiny, scale=4.0)


# Tokenizers and pipelines


@pytest.mark.parametrize("recipe", ["default", "masked", "classification", "casing"])
def test_the_tokenizer_puts_the_template_around_texts(tmp_path: Path, recipe: str) -> None:
    labels = ['head.labels=["no","yes"]'] if recipe == "classification" else []
    run = (
        saved_seq2seq(tmp_path / "run")
        if recipe == "casing"
        else saved(tmp_path / "run", *labels, recipe=recipe)
    )
    tokenizer = AutoTokenizer.from_pretrained(run.path)
    assert isinstance(tokenizer, regard.huggingface.transformers.RegardTokenizer)
    for texts in (("Ada was",), ("Ada was", "born")):
        ids, types = run.encode(*texts)
        found = tokenizer(*texts, return_token_type_ids=True)
        assert found["input_ids"] == ids
        assert found["token_type_ids"] == types
    assert tokenizer.model_max_length == run.recipe.max_source_tokens


def test_a_pipeline_continues_texts_as_ours(trained: Path) -> None:
    ours = regard.load(trained, device="cpu")
    found: Any = pipeline("text-generation", str(trained), device="cpu")(
        ["Ada Finch was", "Otto"], max_new_tokens=8, do_sample=False, return_full_text=True
    )
    expected = regard.generate(ours, ["Ada Finch was", "Otto"], max_new_tokens=8, raw=True)
    texts = [row[0]["generated_text"] for row in found]
    assert texts == expected


def test_a_pipeline_labels_texts_as_ours(tmp_path: Path) -> None:
    run = saved(tmp_path / "run", 'head.labels=["no","yes"]', recipe="classification")
    texts = ["Ada was born", "in Oslo"]
    found: Any = pipeline("text-classification", str(run.path), device="cpu")(texts, batch_size=2)
    with torch.inference_mode():
        for text, row in zip(texts, found, strict=True):
            ids, _ = run.encode(text)
            scores = run.model(torch.tensor([ids]), lengths_of([ids])).softmax(-1)[0]
            assert row["label"] == ["no", "yes"][int(scores.argmax())]
            assert row["score"] == pytest.approx(float(scores.max()), rel=1e-5)


def test_a_pipeline_fills_masks(tmp_path: Path) -> None:
    run = saved(
        tmp_path / "run", "tokenizer.special_tokens.mask=<mask>", recipe="masked", scale=4.0
    )
    fill: Any = pipeline("fill-mask", str(run.path), device="cpu", top_k=2)
    found = fill("Ada w<mask>s born")
    assert fill.tokenizer.mask_token == "<mask>"
    ids = fill.tokenizer("Ada w<mask>s born")["input_ids"]
    place = ids.index(run.tokenizer.special.require("mask"))
    with torch.inference_mode():
        best = run.model(torch.tensor([ids]), lengths_of([ids]))[0, place].topk(2)
    assert [row["token"] for row in found] == best.indices.tolist()


# Without `import regard.huggingface.transformers`


LOAD = """
import json
import sys
import transformers

for path, auto in zip(sys.argv[1::2], sys.argv[2::2]):
    for name in (auto, "AutoTokenizer"):
        load = getattr(transformers, name).from_pretrained
        try:
            load(path)
        except ValueError as error:
            assert "trust_remote_code=True" in str(error)
        else:
            raise AssertionError(name)
assert "regard" not in sys.modules
found = []
for path, auto in zip(sys.argv[1::2], sys.argv[2::2]):
    tokenizer = transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=True)
    model = getattr(transformers, auto).from_pretrained(path, trust_remote_code=True)
    found += [type(model).__name__, type(tokenizer).__name__]
ids = tokenizer("Ada was", return_tensors="pt").to(model.device)
found.append(tokenizer.decode(model.generate(**ids, max_new_tokens=6)[0], skip_special_tokens=True))
print()
print(json.dumps(found))
"""
"""Loads runs; the last is a language model, which continues a text."""


@pytest.mark.slow
def test_the_code_of_a_run_loads_it_where_it_is_trusted(tmp_path: Path, trained: Path) -> None:
    labels = saved(tmp_path / "labels", 'head.labels=["no","yes"]', recipe="classification")
    runs = [str(labels.path), "AutoModelForSequenceClassification"]
    runs += [str(trained), "AutoModelForCausalLM"]
    offline = {"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *runs],
        cwd=tmp_path,
        env=os.environ | offline,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    classifier, _, decoder, tokenizer, text = json.loads(done.stdout.splitlines()[-1])
    assert (classifier, decoder) == ("RegardForSequenceClassification", "RegardForCausalLM")
    assert tokenizer == "RegardTokenizer"
    run = regard.load(trained, device="cpu")
    assert [text] == regard.generate(run, ["Ada was"], max_new_tokens=6, raw=True)


# Errors


@pytest.mark.parametrize(
    ("auto", "options", "says"),
    [
        (AutoModelForMaskedLM, {}, "AutoModelForCausalLM"),
        (AutoModelForCausalLM, {"quantization_config": {"a": 1}}, "quantization_config"),
        (AutoModelForCausalLM, {"device_map": {"a": "cpu", "b": "meta"}}, "device_map"),
        (regard.huggingface.transformers.RegardForCausalLM, {"dtype": "int77"}, "int77"),
        (AutoModelForCausalLM, {"vocab_size": 3}, "vocab_size = 3"),
    ],
)
def test_what_is_unsupported_is_refused(
    tmp_path: Path, auto: Any, options: dict[str, Any], says: str
) -> None:
    run = saved(tmp_path / "run")
    with pytest.raises(UserError, match=says) as caught:
        auto.from_pretrained(run.path, **options)
    assert "\n" not in str(caught.value)


def test_what_a_loaded_run_lacks_is_refused(tmp_path: Path) -> None:
    run = saved(tmp_path / "run")
    model: Any = AutoModelForCausalLM.from_pretrained(run.path)
    ids = torch.full((1, run.recipe.model.context_length + 1), 3)
    with pytest.raises(UserError, match="context length"):
        model(ids)
    with pytest.raises(UserError, match="don't fit"):
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=2)
    with pytest.raises(UserError, match="DynamicCache"):
        model.generate(ids[:, :3], past_key_values=DynamicCache(), max_new_tokens=2)
    with pytest.raises(UserError, match="cache_implementation=static"):
        model.generate(ids[:, :3], cache_implementation="static", max_new_tokens=2)
    with pytest.raises(UserError, match="export-hf"):
        model.save_pretrained(tmp_path / "other")


def test_options_that_a_run_lacks_are_refused_before_transformers_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = saved(tmp_path / "run")
    model: Any = AutoModelForCausalLM.from_pretrained(run.path)
    plain = model.generation_config
    monkeypatch.setattr(GenerationMixin, "generate", lambda *_, **__: pytest.fail("it is called"))
    ids = torch.tensor([[3, 4]])
    assert UNSUPPORTED.keys() >= REFUSED
    for name in UNSUPPORTED:
        says = f"generate: {name}=x isn't supported for a run; leave it out$"
        with pytest.raises(UserError, match=says):
            model.generate(ids, trust_remote_code=True, **{name: "x"})
        config = GenerationConfig()
        if name in vars(config):
            setattr(config, name, "x")
            with pytest.raises(UserError, match=says):
                model.generate(ids, config)
            model.generation_config = config
            with pytest.raises(UserError, match=says):
                model.generate(ids)
            model.generation_config = plain


def test_values_without_effect_are_accepted(tmp_path: Path) -> None:
    """The options of a user's script that leave a mode off; and those that transformers applies."""
    run = saved(tmp_path / "run")
    model: Any = AutoModelForCausalLM.from_pretrained(run.path)
    ids = torch.tensor([[3, 4]])
    off = {name: values[0] if values else None for name, values in UNSUPPORTED.items()}
    plain = model.generate(ids, max_new_tokens=3)
    assert torch.equal(model.generate(ids, max_new_tokens=3, **off), plain)
    model.generate(ids, max_new_tokens=3, repetition_penalty=1.5, no_repeat_ngram_size=2)


def test_without_transformers_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "regard.huggingface.transformers")
    with pytest.raises(UserError, match=r"pip install 'regard\[hf\]'"):
        import_module("regard.huggingface.transformers")
