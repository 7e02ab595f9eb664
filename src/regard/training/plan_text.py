"""Plans of training on texts of any size, window by window."""

import dataclasses
from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import Any

import msgspec

from regard.data.batch import WeightedDataset
from regard.data.causal import Windows, held_out_windows
from regard.decoding import Sampling, generate_ids
from regard.errors import UserError
from regard.runs.recipe import (
    Recipe,
    require_continuing,
    require_no_task,
    require_parent,
)
from regard.runs.run import Run, describe_origin
from regard.runs.start import begin_with, stage_recipe, start_recipe
from regard.text.corpus import Corpus, read_documents
from regard.text.files import TextFile, detect_documents, find_files, has_records
from regard.text.tokenize import (
    TextSpec,
    TokenizedText,
    has_tokens,
    inspect_files,
    load_tokens,
    tokenize_documents,
    tokenize_files,
)
from regard.text.tokenizer import Tokenizer
from regard.training.checkpoint import Progress
from regard.training.loggers import Record, track_text
from regard.training.loop import ExecutionOptions, check_options, train
from regard.training.plan import Plan, make_plan
from regard.training.plan_packed import find_packed, plan_packed
from regard.training.processes import join_processes
from regard.training.resume_checks import require_free

SAMPLE_TOKENS = 64


def plan_text(
    corpus: Corpus,
    out: str | Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
    *,
    tokenizer: Tokenizer | None = None,
    start: Run | None = None,
    mix: str | None = None,
) -> Plan:
    """Plan training on texts: packed corpora, files, folders, or documents in memory.

    The tokens of files are written to the folder `out`/tokens, and read from there when they are
    needed again. `tokenizer` is one that isn't trained on the text; `start` is a run to begin with,
    whose tokenizer is used; `mix` is the weights of packed corpora.

    Raises:
        UserError: a text is too short or can't be encoded, or the model doesn't continue texts.
    """
    chosen = (
        start_recipe(start, "text", recipe, settings)
        if start
        else stage_recipe(recipe or "text", settings, "training")
    )
    require_no_task(chosen)
    require_continuing(chosen)
    require_parent(chosen.training, "training", start is not None)  # before a long tokenization
    if packed := find_packed(corpus, mix, settings):
        config = chosen.training
        return plan_packed(
            packed, Path(out), chosen, config, "training", tokenizer=tokenizer, start=start
        )
    known = start.tokenizer if start else tokenizer
    parts: list[Any] = [Path(corpus)] if isinstance(corpus, str | Path) else list(corpus)
    paths = [part for part in parts if isinstance(part, Path)]
    if paths:
        return _plan_files(paths, Path(out), chosen, known, start)
    documents = read_documents(parts)
    chosen = _with_documents(chosen, "files")
    text = tokenize_documents(
        documents,
        known or chosen.tokenizer,
        chosen.template,
        validation=chosen.data.validation,
        seed=chosen.seed,
    )
    origin = describe_origin("training", documents, ())
    return _plan_tokens(text, Path(out), chosen, origin, documents[0].where, start=start)


def _plan_files(
    paths: Sequence[Path], out: Path, recipe: Recipe, known: Tokenizer | None, start: Run | None
) -> Plan:
    if not (out / "config.toml").exists():
        require_free(out)
    folder, source = out / "tokens", start.path / "tokens" if start else None
    files = inspect_files(
        find_files(paths),
        [source, folder] if source else [folder],
        skip_bad=recipe.data.table.skip_bad,
    )
    kind = recipe.data.documents
    documents = detect_documents(files) if kind == "auto" else kind
    kinds = _kinds(files, documents)
    if (field := recipe.data.table.text) and "records" not in kinds:
        raise UserError(
            f"{files[0].path}: has no records with a field {field!r}; leave --text out, or convert "
            "the text to JSONL or Parquet"
        )
    spec = TextSpec(
        files=files,
        documents=documents,
        text_field=recipe.data.table.text or "text",
        tokenizer=recipe.tokenizer,
        known=None if known is None else known.fingerprint,
        template=recipe.template,
        validation=recipe.data.validation,
        seed=recipe.seed,
    )
    if (out / "config.toml").exists() and not has_tokens(spec, folder):
        raise UserError(
            f"{out}: holds a run of other texts or settings; choose another --out, or resume with "
            "the same command and data"
        )
    with track_text(spec.bytes) as advance:
        text = join_processes().in_turn(
            lambda: tokenize_files(spec, folder, advance, known, source)
        )
    origin = describe_origin("training", (), ()) | {
        "inputs": [str(Path(file.path).resolve()) for file in files],
        "fingerprint": msgspec.structs.replace(spec, known=None).fingerprint,
        "documents": text.documents,
    }
    detected = " (detected; --documents chooses)" if kind == "auto" else ""
    facts = {
        "files": len(files),
        "encoding": ", ".join(
            sorted({_ENCODINGS.get(file.encoding, file.encoding) for file in files})
        ),
        "documents": f"{text.documents:,} {' and '.join(kinds)}{detected}",
    }
    where, chosen = files[0].path, _with_documents(recipe, documents)
    return _plan_tokens(text, out, chosen, origin, where, facts, start=start)


def _kinds(files: Sequence[TextFile], documents: str) -> list[str]:
    """Return the kinds of documents in files; JSONL and Parquet always hold records."""
    found = {"records" if has_records(file.path) else documents for file in files}
    return sorted(found, key=lambda kind: kind == "records")


_ENCODINGS = {"": "Parquet", "utf-8-sig": "UTF-8", "utf-16": "UTF-16", "cp1252": "Windows-1252"}


def _with_documents(recipe: Recipe, documents: str) -> Recipe:
    return msgspec.structs.replace(
        recipe, data=msgspec.structs.replace(recipe.data, documents=documents)
    )


def _plan_tokens(
    text: TokenizedText,
    out: Path,
    recipe: Recipe,
    origin: dict[str, Any],
    where: str,
    facts: dict[str, Any] | None = None,
    *,
    start: Run | None,
) -> Plan:
    if len(text.training) < 2:
        raise UserError(f"{where}: is too short to learn from")
    run = Run.new(out, recipe, text.tokenizer, origin)
    if start:
        begin_with(start, run)
    return _plan_run(run, text, facts or {})


def _plan_run(run: Run, text: TokenizedText, facts: dict[str, Any]) -> Plan:
    recipe = run.recipe
    format = run.row_format.whole_rows  # windows begin anywhere
    training = WeightedDataset(Windows(text.training, format))
    checks = [held_out_windows(text.validation, format)]
    plan = make_plan(run, [training], checks, recipe.training, "training")
    tokens = {"training_tokens": len(text.training), "validation_tokens": len(text.validation)}
    prompt = (text.validation or text.training)[: max(recipe.model.context_length // 8, 1)]

    def report(validated: Record) -> Record:
        loss = validated.get("validation_loss")
        remaining = recipe.model.context_length - len(prompt)
        sample = sample_text(run, prompt, min(SAMPLE_TOKENS, remaining))
        return ({} if loss is None else {"perplexity": exp(loss)}) | {"sample": sample}

    return dataclasses.replace(plan, facts=facts | tokens, at_checkpoint=report)


def train_converted(run: Run, steps: int, options: ExecutionOptions) -> Progress:
    """Train a converted run in its folder, on the tokens that came along.

    Raises:
        UserError: there are none.
    """
    folder = require_tokens(run)
    training = msgspec.structs.replace(run.recipe.training, steps=steps, epochs=None)
    run.recipe = msgspec.structs.replace(run.recipe, training=training)
    check_options(training, options, join_processes())
    plan = _plan_run(run, load_tokens(folder), {})
    run.save_description()
    return train(
        run,
        plan.sampler,
        plan.validation,
        plan.config,
        options,
        title=plan.title,
        at_checkpoint=plan.at_checkpoint,
    )


def require_tokens(run: Run) -> Path:
    """Return the folder with the tokens of a run's text.

    Raises:
        UserError: there is none.
    """
    folder = run.path / "tokens"
    if not folder.is_dir():
        raise UserError(
            f"{run.path}: has no tokens of a text to train on; leave --steps out, and train the "
            "new run by regard train"
        )
    return folder


def sample_text(run: Run, start: Sequence[int], max_new_tokens: int) -> str:
    """Return the continuation of a text's tokens, sampled at temperature 0.8, with these."""
    training = run.model.training
    run.model.eval()
    (sample,) = generate_ids(
        run.language_model,
        [list(start)],
        max_new_tokens=max_new_tokens,
        sampling=Sampling(temperature=0.8, seed=run.recipe.seed),
        device=run.device,
    )
    run.model.train(training)
    return run.tokenizer.decode([*start, *sample.ids])
