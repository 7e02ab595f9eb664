"""regard generate"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regard.cli import options
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.runs.machine import Precision


@click.command()
@options.RUN
@click.argument("prompts", nargs=-1)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0: greedy.")
@click.option("--top-k", type=int, help="Only the k most probable tokens.")
@click.option("--top-p", type=float, help="Only the most probable tokens that reach this mass.")
@click.option("--samples", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--max-new-tokens", type=click.IntRange(min=1), help="As many as fit the block if not given."
)
@click.option("--stop", help="End the continuation before this text.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each sample.")
@options.machine_options(precision="float32")
def generate(
    run: Path,
    prompts: tuple[str, ...],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    samples: int,
    max_new_tokens: int | None,
    stop: str | None,
    seed: int,
    as_json: bool,
    device: str,
    precision: "Precision",
    threads: int | None,
) -> None:
    """Continue each of PROMPTS with the model of RUN; - reads prompts from lines of the input."""
    from regard import api

    options.choose_machine(device, precision, threads)
    texts = _read_input() if prompts == ("-",) else list(prompts)
    if not texts:
        raise UserError("generate: there is no prompt; name one, or - and lines on the input")
    asked = [text for text in texts for _ in range(samples)]
    continued = api.generate(
        api.load(run, device=device),
        asked,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=stop,
        precision=precision,
    )
    for number, (prompt, text) in enumerate(zip(asked, continued, strict=True)):
        record = {"prompt": prompt, "sample": number % samples, "text": text}
        click.echo(json.dumps(record, ensure_ascii=False) if as_json else text)


def _read_input() -> list[str]:
    """The lines of the standard input."""
    try:
        return sys.stdin.read().splitlines()
    except UnicodeDecodeError:
        raise UserError("generate: the input isn't UTF-8; convert it") from None
