"""regard generate, regard compile"""

import json
import sys
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from regard.cli import options
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.environment import Precision
    from regard.runs.run import Run


@click.command()
@options.RUN
@click.argument("prompts", nargs=-1)
@click.option(
    "--temperature",
    type=float,
    default=0.0,
    help="Sampling temperature; 0 for greedy decoding.",
)
@click.option("--top-k", type=int, help="Sample from the k most probable tokens.")
@click.option(
    "--top-p", type=float, help="Sample from the smallest set of tokens with this probability."
)
@click.option("--num-beams", type=options.COUNT, help="Number of beams; no sampling.")
@click.option(
    "--num-return-sequences",
    type=options.COUNT,
    default=1,
    help="Number of samples per prompt, or of the best beams.",
)
@click.option(
    "--length-penalty",
    type=float,
    default=1.0,
    help="Exponent of the length that divides a beam's log-probability; higher favors long texts.",
)
@click.option(
    "--early-stopping",
    type=options.Choice(["true", "false", "never"]),
    default="never",
    help="End of beam search once as many continuations have ended as there are beams. true: at "
    "once; false: if no open beam scores better now; never: if none can ever score better.",
)
@click.option(
    "--max-new-tokens",
    type=options.COUNT,
    help="Number of tokens to generate. Default: fill the context of the longest prompt.",
)
@click.option("--stop-string", help="Text that ends the continuation, not printed.")
@click.option("--raw", is_flag=True, help="Continue the prompt as it stands, without the template.")
@options.HISTORY
@options.EDIT
@options.SEED_0
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON per sample or beam.")
@options.environment_options(precision="float32")
@click.option(
    "--compile",
    "compiled",
    is_flag=True,
    help="Compile the decoding step for all rows first, unless a compiled one is cached.",
)
def generate(
    run: Path,
    prompts: tuple[str, ...],
    as_json: bool,
    device: str,
    threads: int | None,
    trust_code: bool,
    history: Path | None,
    edit: Path | None,
    compiled: bool,
    **settings: Any,
) -> None:
    """Continue each of PROMPTS with the model of RUN; - reads prompts from the lines of stdin.

    A run trained on questions or for a task prints the answer, label or tags; a tab separates two
    texts.
    """
    from regard.decoding.package import compile
    from regard.device import require_memory
    from regard.edits.apply import edited
    from regard.edits.edit import load_edit
    from regard.models.builders import Classifier, TokenClassifier
    from regard.runs.run import load
    from regard.tasks.examples import read_history

    _refuse_mixtures(settings["num_beams"], settings["temperature"])
    texts = _read_stdin() if prompts == ("-",) else list(prompts)
    if not texts:
        raise UserError("generate: there is no prompt; name one, or - and lines on stdin")
    loaded = load(run, device=device, threads=threads, trust_code=trust_code)
    each = max(settings["num_beams"] or 1, settings["num_return_sequences"])
    require_memory(
        4 * each * len(texts) * loaded.tokenizer.size, f"{each:,} sequences of each prompt"
    )
    if history is not None:
        if settings["raw"]:
            raise UserError("generate: --history needs the template; leave --raw out")
        loaded = loaded.with_history(read_history(history))
    if isinstance(loaded.model, Classifier | TokenClassifier):
        _refuse(_GENERATION, "is for a model that generates, and this one labels; drop it")
        records = _labels(loaded, texts, settings["precision"])
    else:
        if compiled:
            if edit is not None:
                raise UserError("generate: --compile holds no edits; leave it or --edit out")
            rows = len(texts) * (settings["num_beams"] or settings["num_return_sequences"])
            compile(loaded, batch=rows, precision=settings["precision"], again=False)
        beams = settings["num_beams"] is not None
        records = (_beams if beams else _samples)(loaded, texts, settings)
    with edited(loaded, None if edit is None else load_edit(edit)):
        found = list(records)
    for record in found:
        click.echo(json.dumps(record, ensure_ascii=False) if as_json else record["text"])
    _warn_unknown(loaded, texts)


@click.command()
@options.RUN
@click.option("--batch", type=options.COUNT, default=1, help="Number of rows decoded together.")
@options.environment_options(precision="float32", device="cpu")
def compile(
    run: Path,
    batch: int,
    device: str,
    precision: "Precision",
    threads: int | None,
    trust_code: bool,
) -> None:
    """Compile the decoding of one token with the model of RUN; takes some 20 seconds.

    generate, ask, serve and evaluate use the compiled package from then on, for this number of
    rows. It is stored in the user's cache folder, for this machine, number of threads, version of
    torch, precision and these weights; without it, the commands run uncompiled.
    """
    from regard import api

    loaded = api.load(run, device=device, threads=threads, trust_code=trust_code)
    print(api.compile(loaded, batch=batch, precision=precision))


def _warn_unknown(run: "Run", texts: list[str]) -> None:
    """Warn about parts of texts that the vocabulary lacks, if that isn't an error."""
    parts = [part for text in texts for part in text.split("\t")]
    unknown = dict.fromkeys(one for part in parts for one in run.tokenizer.unknown_parts(part))
    if unknown:
        warnings.warn(
            f"the tokenizer of {run.path} has no {', '.join(map(repr, unknown))}; the model hasn't "
            "learned them",
            stacklevel=2,
        )


def _labels(run: "Run", texts: list[str], precision: "Precision") -> Iterator[dict[str, Any]]:
    """Label each text, or two with a tab between them, or tag a text's words."""
    from regard.evaluation.tasks import label as predict

    pairs = [text.partition("\t") for text in texts]
    inputs = [(first, second) if tab else first for first, tab, second in pairs]
    for text, label in zip(texts, predict(run, inputs, precision=precision), strict=True):
        yield {"prompt": text, "text": label.text, "probability": label.probability}


def _samples(run: "Run", texts: list[str], settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from regard.decoding import generate

    n = settings["num_return_sequences"]
    prompts = [text for text in texts for _ in range(n)]
    chosen = {name: settings[name] for name in (*_COMMON, *_SAMPLING, "seed")}
    for i, text in enumerate(generate(run, prompts, **chosen)):
        yield {"prompt": prompts[i], "sample": i % n, "text": text}


def _beams(run: "Run", texts: list[str], settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from regard.decoding.beam_search import beam_search

    chosen = {name: settings[name] for name in (*_COMMON, "num_return_sequences", "length_penalty")}
    stopping: dict[str, Any] = {"true": True, "false": False, "never": "never"}
    found = beam_search(
        run,
        texts,
        num_beams=settings["num_beams"],
        early_stopping=stopping[settings["early_stopping"]],
        **chosen,
    )
    for text, best in zip(texts, found, strict=True):
        for i, beam in enumerate(best):
            yield {"prompt": text, "beam": i, "score": beam.score, "text": beam.text}


_COMMON = ("max_new_tokens", "stop_string", "raw", "precision")
_SAMPLING = ("temperature", "top_k", "top_p")
_BEAM_SEARCH = ("length_penalty", "early_stopping")
_GENERATION = {
    *_SAMPLING,
    *_BEAM_SEARCH,
    *("num_beams", "num_return_sequences", "max_new_tokens", "stop_string", "raw", "seed"),
    "compiled",
}


def _refuse_mixtures(num_beams: int | None, temperature: float) -> None:
    """Refuse options of sampling where nothing is sampled, and of beams without --num-beams."""
    if num_beams is None:
        _refuse(_BEAM_SEARCH, "is for beam search; add --num-beams, or leave it out")
        if temperature == 0:
            _refuse(("top_k", "top_p"), "is for sampling; add --temperature, or leave it out")
    else:
        reason = "is for sampling, and --num-beams doesn't sample; leave one of them out"
        _refuse((*_SAMPLING, "seed"), reason)


def _refuse(options: Collection[str], reason: str) -> None:
    """Refuse options given on the command line.

    Raises:
        UserError: one of them is given; the message names the first.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in options and source is ParameterSource.COMMANDLINE:
            raise UserError(f"generate: {parameter.opts[0]} {reason}")


def _read_stdin() -> list[str]:
    from regard.files import split_lines

    try:
        return split_lines(sys.stdin.buffer.read().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise UserError("generate: stdin isn't UTF-8; convert it") from None
