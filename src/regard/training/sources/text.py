"""Text of any size, read in windows: files, folders, or documents in memory."""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import groupby
from math import exp, log
from pathlib import Path
from sys import float_info
from typing import Any

import msgspec
from jaxtyping import Integer
from numpy import ndarray

from regard.data.batch import WeightedDataset
from regard.data.windows import HeldOutWindows, Windows
from regard.decoding import Sampling, generate_ids
from regard.errors import UserError
from regard.files import held_alone, write_file
from regard.models.uninitialized import make_uninitialized
from regard.runs.recipe import Recipe
from regard.runs.run import Run, describe_origin, require_free
from regard.runs.training_text import TOKENS
from regard.text.corpus import Corpus, Document, Piece, cut_pieces, paths_among, read_corpus
from regard.text.files import PACKED
from regard.text.pack import encode_batch, pack_corpus
from regard.text.packed import (
    DocumentTokens,
    Header,
    PackedCorpus,
    Splits,
    TextSpec,
    held_out_documents,
    is_packed,
    link_corpus,
    open_packed,
    packed_from,
    read_header,
    read_spec,
    remove_corpus,
    require_intact,
)
from regard.text.template import Template, TemplateConfig
from regard.text.tokenizer import Tokenizer, train_tokenizer
from regard.training.loggers import Record, track_text
from regard.training.processes import join_processes
from regard.training.sources.base import (
    Datasets,
    Prepared,
    Source,
    require_continuing,
    require_next_token,
    require_no_task,
    require_parent,
)

SAMPLE_TOKENS = 64
_ENCODINGS = {"": "Parquet", "utf-8-sig": "UTF-8", "utf-16": "UTF-16", "cp1252": "Windows-1252"}


@dataclasses.dataclass(frozen=True)
class TextSource(Source):
    """A text; the tokens of files are packed to the run's folder, or read from there."""

    corpus: Corpus
    stage = "training"
    usual = "text"
    unread = (
        "data.blank_lines",
        "data.ascii_questions",
        "data.packing",
        "data.table.second",
        "data.table.label",
        "data.table.header",
        "data.table.test",
    )

    def prepare(
        self, recipe: Recipe, tokenizer: Tokenizer | None, out: Path, start: Run | None
    ) -> Prepared:
        """Tokenize the text."""
        require_no_task(recipe)
        require_continuing(recipe)
        require_next_token(recipe, "text is read in windows,", "use regard pretrain")
        require_parent(recipe.training, start is not None)
        if start is None:  # before a long tokenization
            make_uninitialized(recipe.model, recipe.head, vocabulary=1)
        corpus = self.corpus
        parts: list[Any] = [Path(corpus)] if isinstance(corpus, str | Path) else list(corpus)
        if paths := paths_among(parts):
            return _prepare_files(paths, recipe, tokenizer, out, start)
        documents = read_corpus(parts)
        text = _encode_documents(documents, recipe, tokenizer)
        return Prepared(
            recipe=with_documents(recipe, "files"),
            tokenizer=text.tokenizer,
            origin=describe_origin(self.stage, documents, ()),
            datasets=lambda run: window_datasets(run, text),
        )


def _encode_documents(
    documents: Sequence[Document], recipe: Recipe, tokenizer: Tokenizer | None
) -> Splits:
    """Encode documents in memory; without a tokenizer, train one on them.

    Raises:
        UserError: a document can't be encoded.
    """
    pieces = list(cut_pieces(Piece(document.text, True, document.where) for document in documents))
    if tokenizer is None:
        tokenizer = train_tokenizer(recipe.tokenizer, pieces)
    batch = encode_batch(tokenizer, pieces)
    held = batch.held_out(-1, held_out_documents(recipe.data.validation, recipe.seed))
    training, held_out = (
        DocumentTokens(part.ids, part.starts, tokenizer.size, Path(documents[0].where))
        for part in (batch.only(~held), batch.only(held))
    )
    return Splits(tokenizer=tokenizer, training=training, validation=held_out)


def _prepare_files(
    paths: Sequence[Path], recipe: Recipe, known: Tokenizer | None, out: Path, start: Run | None
) -> Prepared:
    """Pack files to the folder of the run, unless packed there or in the start's folder."""
    if not (out / "config.toml").exists():
        require_free(out)
    source = start.path / TOKENS if start else None
    data = recipe.data
    unread = TextSpec(
        documents=data.documents,
        text_field=data.table.text or "text",
        tokenizer=recipe.tokenizer,
        known=None if known is None else known.fingerprint,
        validation=data.validation,
        seed=recipe.seed,
    )
    spec = read_spec(
        unread,
        paths,
        [source, out / TOKENS] if source else [out / TOKENS],
        skip_bad=data.table.skip_bad,
        hint="; or leave such files out with --skip-bad",
    )
    files = spec.files
    if data.table.text:
        spec.require_records()
    text = join_processes().in_turn(lambda: _packed(spec, out, known, source, recipe.template))
    with _damage_explained(text.path):
        join_processes().alone(partial(require_intact, text))
    detected = " (detected; --documents chooses)" if data.documents == "auto" else ""
    encodings = {_ENCODINGS.get(file.encoding, file.encoding) for file in files}
    facts = {
        "files": len(files),
        "encoding": ", ".join(sorted(encodings)),
        "documents": f"{text.documents:,} {' and '.join(spec.kinds)}{detected}",
    }
    origin = describe_origin(TextSource.stage, (), ()) | {
        "inputs": [str(Path(file.path).resolve()) for file in files],
        "fingerprint": msgspec.structs.replace(spec, known=None).fingerprint,
        "documents": text.documents,
    }
    return Prepared(
        recipe=with_documents(recipe, spec.documents),
        tokenizer=text.tokenizer,
        origin=origin,
        datasets=lambda run: dataclasses.replace(window_datasets(run, text, facts), packed=spec),
    )


def _packed(
    spec: TextSpec,
    out: Path,
    known: Tokenizer | None,
    source: Path | None,
    template: TemplateConfig,
) -> PackedCorpus:
    """Return the tokens of a text, after packing it to the folder of a run if needed.

    Raises:
        UserError: another run is there, another process writes there, a document is malformed or
            can't be encoded, or the text is too short.
    """
    folder, is_new = out / TOKENS, not out.exists()
    if packed_from(spec, folder):
        return _open(spec, folder)
    _require_no_run(out)
    try:
        with held_alone(folder):
            _require_no_run(out)  # another process may have begun one
            if not packed_from(spec, folder):  # another process may have just packed it
                remove_corpus(folder)
                _pack(spec, folder, known, source)
                if _is_short(_open(spec, folder), template):
                    remove_corpus(folder)
                    raise _too_short(spec.files[0].path)
            return _open(spec, folder)
    except UserError:
        if is_new:
            with suppress(OSError):
                out.rmdir()
        raise


def _is_short(text: PackedCorpus, template: TemplateConfig) -> bool:
    """Return whether a text has no token to predict in training."""
    share = text.header.spec.validation
    training, _ = text.streams(Template(template, text.tokenizer), share)
    return len(training) < 2


def _too_short(place: str | Path) -> UserError:
    return UserError(
        f"{place}: is too short to learn from; give a longer text, or a smaller data.validation"
    )


def _require_no_run(out: Path) -> None:
    """Raise for a run, whose tokens are missing or those of another text.

    Raises:
        UserError: says which of the two.
    """
    folder = out / TOKENS
    if (out / "config.toml").exists():
        if not folder.exists():
            raise UserError(f"{folder}: is missing; restore it, or choose another --out")
        raise UserError(
            f"{out}: holds a run of other texts or settings; choose another --out, or resume "
            "with the same command and data"
        )


def _open(spec: TextSpec, folder: Path) -> PackedCorpus:
    """Open the tokens of a text.

    Raises:
        UserError: they are damaged, or another command has replaced them.
    """
    with _damage_explained(folder):
        text = open_packed(folder)
    if text.header.spec.fingerprint != spec.fingerprint:
        raise _replaced(folder)
    return text


def _replaced(folder: Path) -> UserError:
    return UserError(
        f"{folder}: another command has replaced these tokens by those of other texts or settings; "
        "choose another --out"
    )


def _pack(spec: TextSpec, folder: Path, known: Tokenizer | None, source: Path | None) -> None:
    """Pack a text, or link the tokens of `source` if it is the same text."""
    if source and (header := _same_text(spec, source)):
        link_corpus(source, folder)
        header = msgspec.structs.replace(header, spec=spec)
        write_file(folder / PACKED, msgspec.json.encode(header))
    else:
        with track_text(spec.bytes) as advance:
            pack_corpus(spec, folder, advance, tokenizer=known)


@contextmanager
def _damage_explained(folder: Path) -> Iterator[None]:
    """Add to errors of a damaged packed text how to repair it."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{folder}: is damaged ({error}); delete it") from None


def _same_text(spec: TextSpec, folder: Path) -> Header | None:
    """Return the header of a folder with the same text and a known tokenizer.

    The tokenizer may have been trained on that text.
    """
    if spec.known is None or not is_packed(folder):
        return None
    header = read_header(folder)
    theirs = msgspec.structs.replace(header.spec, known=spec.known, tokenizer=spec.tokenizer)
    same = theirs.fingerprint == spec.fingerprint and header.tokenizer == spec.known
    return header if same else None


@contextmanager
def tokens_held(run: Run, spec: TextSpec | None) -> Iterator[None]:
    """Let no other command replace the tokens in the folder of a run that is begun.

    `spec` is that of the run's own tokens there, if it has any; tokens of another text are deleted.

    Raises:
        UserError: another process writes tokens there, or has replaced the run's.
    """
    folder = run.path / TOKENS
    # Where a link leads may be read-only.
    with nullcontext() if folder.is_symlink() else held_alone(folder):
        if spec is None:
            _remove_other_tokens(run)
        elif not packed_from(spec, folder):
            raise _replaced(folder)
        yield


def _remove_other_tokens(run: Run) -> None:
    """Delete tokens of another text, which a dry run or a killed training left in the folder.

    A packed corpus there that the run is trained on stays.
    """
    folder = run.path / TOKENS
    if is_packed(folder) and str(folder.resolve()) not in run.origin.get("inputs", ()):
        spec = msgspec.structs.replace(read_header(folder).spec, known=None)
        if spec.fingerprint != run.origin["fingerprint"]:
            if folder.is_symlink():
                folder.unlink()
            remove_corpus(folder)


def with_documents(recipe: Recipe, documents: str) -> Recipe:
    """Return a recipe with the kind of documents that was found."""
    return msgspec.structs.replace(
        recipe, data=msgspec.structs.replace(recipe.data, documents=documents)
    )


def window_datasets(run: Run, text: Splits, facts: dict[str, Any] | None = None) -> Datasets:
    """Return windows of a text, with a sample of the model's own text at each checkpoint.

    Raises:
        UserError: it is too short.
    """
    training, held_out = text.streams(run.template, run.recipe.data.validation)
    if len(training) < 2:
        raise _too_short(text.training.path)
    format = run.row_format.whole_rows  # windows begin anywhere
    n = run.recipe.model.context_length
    if len(training) < n and "parent" not in run.origin:  # a parent fixes the context length
        warnings.warn(
            f"the text has {len(training):,} training tokens, fewer than model.context_length={n}; "
            "give a longer text, or set a smaller context_length",
            stacklevel=2,
        )
    prompt = (held_out if len(held_out) else training).read(0, max(n // 8, 1))

    def report(validated: Record) -> Record:
        sample = sample_text(run, prompt, min(SAMPLE_TOKENS, n - len(prompt)))
        return perplexity_record(validated) | {"sample": sample}

    return Datasets(
        training=[WeightedDataset(Windows(training, format))],
        held_out=[HeldOutWindows(held_out, format)],
        facts=(facts or {})
        | {"training_tokens": len(training), "validation_tokens": len(held_out)},
        at_checkpoint=report,
    )


def perplexity_record(validated: Record) -> Record:
    """Return the perplexity for the record of a checkpoint, given its validation loss.

    Empty if nothing is held out, and above the largest float.
    """
    loss = validated.get("validation_loss")
    return {} if loss is None or loss > log(float_info.max) else {"perplexity": exp(loss)}


def stored_text(run: Run) -> Splits:
    """Return the tokens of the text that a run was trained on.

    Raises:
        UserError: there are none, or they are damaged.
    """
    folder = run.path / TOKENS
    if not folder.is_dir():
        raise UserError(
            f"{run.path}: has no tokens of a text to train on; leave --steps out, and train the "
            "new run by regard train"
        )
    with _damage_explained(folder):
        corpus = open_packed(folder)
        require_intact(corpus)
    return corpus


def sample_text(run: Run, prompt: Integer[ndarray, " tokens"], max_new_tokens: int) -> str:
    """Return a prompt with its continuation, sampled at temperature 0.8.

    Special tokens, such as those between documents, become line ends.
    """
    training, ids = run.model.training, prompt.tolist()
    run.model.eval()
    (sample,) = generate_ids(
        run.language_model,
        [ids],
        max_new_tokens=max_new_tokens,
        sampling=Sampling(temperature=0.8, seed=run.recipe.seed),
        device=run.device,
    )
    run.model.train(training)
    special, tokenizer = run.tokenizer.special.ids, run.tokenizer
    parts = groupby([*ids, *sample.ids], special.__contains__)
    return "\n".join(tokenizer.decode(list(part)) for is_special, part in parts if not is_special)
