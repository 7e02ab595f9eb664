"""Packing of text into token files, and the choice of a tokenizer; a saved one imports torch."""

from collections.abc import Sequence
from pathlib import Path

from regard.errors import UserError
from regard.runs.recipe import Recipe
from regard.runs.recipes import find_recipe
from regard.text.pack import pack_files
from regard.text.packed import PackedCorpus, TextSpec, open_packed
from regard.text.tokenizer import Tokenizer
from regard.training.loggers import track_text


def pack(
    corpus: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    tokenizer: Tokenizer | str | Path | None = None,
    documents: str = "auto",
    text: str = "text",
    validation: float = 0.02,
    seed: int = 0,
    jobs: int | None = None,
) -> PackedCorpus:
    """Write files and folders as token files, or continue an interrupted packing.

    `tokenizer` is trained ("characters", "words" or "byte-pairs:SIZE"), or that of a run or of a
    Hugging Face folder ("hf:PATH"); default: 2048 byte pairs. `documents` is auto, files,
    paragraphs, lines or records, whose text is in the field `text`; `validation` is the share of
    documents to hold out, and `jobs` the number of processes, by default one per core. They import
    the main script, so a script calls this under `if __name__ == "__main__":`.

    Raises:
        UserError: a file can't be read or encoded, an option is invalid, or `out` holds
            something else.

    >>> from pathlib import Path
    >>> _ = Path("people.txt").write_text("Ada was born in Rome.")
    >>> packed = regard.pack("people.txt", out="packed", tokenizer="words", validation=0, jobs=1)
    >>> packed.tokenizer.decode(packed.training.ids.tolist())
    'Ada was born in Rome.'
    """
    settings, known = (
        ([], tokenizer)
        if tokenizer is None or isinstance(tokenizer, Tokenizer)
        else choose_tokenizer(tokenizer)
    )
    paths = [corpus] if isinstance(corpus, str | Path) else corpus
    spec = TextSpec(
        documents=documents,
        text_field=text,
        tokenizer=find_recipe(Recipe(), settings).tokenizer,
        known=None if known is None else known.fingerprint,
        validation=validation,
        seed=seed,
    )
    out = Path(out)
    pack_files([Path(path) for path in paths], out, track_text, spec, tokenizer=known, jobs=jobs)
    return open_packed(out)


# Choice of a tokenizer

_TRAINED = ("characters", "words", "byte-pairs")
"""Kinds of tokenizers to train on a text."""


def choose_tokenizer(value: str | Path) -> tuple[list[str], Tokenizer | None]:
    """Return the settings of a tokenizer to train, or a loaded tokenizer.

    Raises:
        UserError: `value` is neither a kind of tokenizer nor the place of one.
    """
    kind, colon, size = str(value).partition(":")
    if kind in _TRAINED:
        if colon and not (kind == "byte-pairs" and size.isdecimal()):
            raise UserError(f"--tokenizer {value}: takes no such size; write byte-pairs:32000, say")
        return [f"tokenizer.kind={kind}", *([f"tokenizer.size={size}"] if colon else [])], None
    if kind != "hf" and not Path(value, "tokenizer.json").is_file():
        kinds = ", ".join(_TRAINED)
        raise UserError(
            f"--tokenizer {value}: there is no {value}/tokenizer.json; name a run, hf:PATH, or a "
            f"kind: {kinds}, with its size as in byte-pairs:32000"
        )
    from regard.huggingface.convert.folder import load_tokenizer  # needs torch

    return [], load_tokenizer(str(value))
