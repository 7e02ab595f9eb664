"""regard prune"""

from pathlib import Path
from shlex import quote
from typing import Any

import click

from regard.cli import options


@click.command()
@options.RUN
@click.argument("data", type=options.PATH)
@options.NEW
@click.option(
    "--by",
    type=options.Choice(["importance", "ablation", "gates"]),
    default="importance",
    help="Importance: gradient of the loss, loss increase without a head, or learned gates.",
)
@click.option("--keep", type=float, default=0.6, help="Share of the heads to keep.")
@options.JSON
@options.DEVICE_CPU
def prune(
    run: Path,
    data: Path,
    out: Path,
    by: str,
    keep: float,
    json_file: Path | None,
    **loading: Any,
) -> None:
    """Save RUN without the attention heads that matter least to its loss on DATA.

    DATA is a file of questions with answers, of rows of the run's task, or a text. Heads that
    share keys and values are removed together, and each layer keeps one such group. Prints the
    importance of all heads, and loss and score on DATA with several shares of heads kept.
    """
    from regard import api
    from regard.training.pruning import prune as prune_heads

    found = prune_heads(api.load(run, **loading), data, out=out, by=by, keep=keep)
    click.echo(found.table())
    options.write_json(json_file, {"heads": found.rows(), "levels": found.level_rows()})
    click.echo(f"To train it: regard train TASK FILE --from {quote(str(out))} --out NEW")
    click.echo(f"Run: {out}")
