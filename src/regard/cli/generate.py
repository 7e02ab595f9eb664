"""regard generate"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from regard.cli import options
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.runs.machine import Precision
    from regard.runs.run import Run


@click.command()
@options.RUN
@click.argument("prompts", nargs=-1)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0: greedy.")
@click.option("--top-k", type=int, help="Only the k most probable tokens.")
@click.option("--top-p", type=float, help="Only the most probable tokens that reach this mass.")
@click.option("--samples", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--beams",
    type=click.IntRange(min=1),
    help="Search for the most probable continuations, so many side by side; nothing is drawn.",
)
@click.option(
    "--return",
    "n_best",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Of the beams, print so many, the best first.",
)
@click.option(
    "--length-penalty",
    type=float,
    default=1.0,
    show_default=True,
    help="Beams score log-probability / length^penalty; a higher one favours long continuations.",
)
@click.option(
    "--early-stopping",
    type=click.Choice(["true", "false", "never"]),
    default="never",
    show_default=True,
    help="Once as many continuations have ended as there are beams, true stops; false stops when "
    "what goes on is no better so far; never, when it can't become better.",
)
@click.option(
    "--max-new-tokens", type=click.IntRange(min=1), help="As many as fit the block if not given."
)
@click.option("--stop", help="End the continuation before this text.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option(
    "--json", "as_json", is_flag=True, help="Print a line of JSON for each sample or beam."
)
@options.machine_options(precision="float32")
def generate(
    run: Path,
    prompts: tuple[str, ...],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    samples: int,
    beams: int | None,
    n_best: int,
    length_penalty: float,
    early_stopping: str,
    max_new_tokens: int | None,
    stop: str | None,
    seed: int,
    as_json: bool,
    device: str,
    precision: "Precision",
    threads: int | None,
) -> None:
    """Continue each of PROMPTS with the model of RUN; - reads prompts from lines of the input.

    A run that labels texts, or tags their words, prints the labels; a tab parts two texts.
    """
    _refuse_mixtures(beams)
    from regard import api
    from regard.models.families import Classifier, TokenClassifier

    options.choose_machine(device, precision, threads)
    texts = _read_input() if prompts == ("-",) else list(prompts)
    if not texts:
        raise UserError("generate: there is no prompt; name one, or - and lines on the input")
    loaded = api.load(run, device=device)
    wishes: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "stop": stop,
        "precision": precision,
    }
    if isinstance(loaded.model, Classifier | TokenClassifier):
        _refuse(_WRITING_FLAGS, "is for a model that writes, and this one labels; leave it out")
        records = _labelled(loaded, texts, precision)
    elif beams is None:
        wishes |= {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        records = _sampled(loaded, texts, samples, wishes)
    else:
        wishes |= {"beams": beams, "n_best": n_best, "length_penalty": length_penalty}
        wishes["early_stopping"] = _EARLY_STOPPING[early_stopping]
        records = _searched(loaded, texts, wishes)
    for record in records:
        click.echo(json.dumps(record, ensure_ascii=False) if as_json else record["text"])


def _labelled(run: "Run", texts: list[str], precision: "Precision") -> list[dict[str, Any]]:
    """The label of each text, or of two with a tab between them; or the tags of a text's words."""
    from regard import api

    pairs = [text.partition("\t") for text in texts]
    asked = [(first, second) if tab else first for first, tab, second in pairs]
    found = api.label(run, asked, precision=precision)
    return [
        {"prompt": prompt, "text": label.text, "probability": label.probability}
        for prompt, label in zip(texts, found, strict=True)
    ]


def _sampled(
    run: "Run", texts: list[str], samples: int, wishes: dict[str, Any]
) -> list[dict[str, Any]]:
    """Samples of each text's continuation."""
    from regard import api

    asked = [text for text in texts for _ in range(samples)]
    return [
        {"prompt": prompt, "sample": number % samples, "text": text}
        for number, (prompt, text) in enumerate(
            zip(asked, api.generate(run, asked, **wishes), strict=True)
        )
    ]


def _searched(run: "Run", texts: list[str], wishes: dict[str, Any]) -> list[dict[str, Any]]:
    """The best continuations of each text."""
    from regard import api

    return [
        {"prompt": prompt, "beam": number, "score": beam.score, "text": beam.text}
        for prompt, best in zip(texts, api.beam_search(run, texts, **wishes), strict=True)
        for number, beam in enumerate(best)
    ]


_EARLY_STOPPING = {"true": True, "false": False, "never": "never"}
_SAMPLING_FLAGS = {"--temperature", "--top-k", "--top-p", "--samples"}
_BEAM_FLAGS = {"--return", "--length-penalty", "--early-stopping"}
_WRITING_FLAGS = _SAMPLING_FLAGS | _BEAM_FLAGS | {"--beams", "--max-new-tokens", "--stop", "--seed"}


def _refuse_mixtures(beams: int | None) -> None:
    """Refuse flags of sampling with --beams, and those of beams without."""
    if beams is None:
        _refuse(_BEAM_FLAGS, "is for beam search; add --beams, or leave it out")
    else:
        reason = "is for sampling, and --beams draws nothing; leave one of them out"
        _refuse(_SAMPLING_FLAGS, reason)


def _refuse(flags: set[str], reason: str) -> None:
    """Refuse flags that were given.

    Raises:
        UserError: names the first of them.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.opts[0] in flags and source is ParameterSource.COMMANDLINE:
            raise UserError(f"generate: {parameter.opts[0]} {reason}")


def _read_input() -> list[str]:
    """The lines of the standard input."""
    try:
        return sys.stdin.read().splitlines()
    except UnicodeDecodeError:
        raise UserError("generate: the input isn't UTF-8; convert it") from None
