"""regard lens"""

from pathlib import Path
from typing import Any

import click

from regard.cli import options


@click.command()
@options.TRUST_CODE
@options.RUN
@click.argument("text")
@click.argument("second", required=False)
@click.option(
    "--right", help="Next word whose logit the parts contribute to. Default: most likely."
)
@click.option("--wrong", help="Next word to compare it with. Default: second most likely.")
@click.option(
    "--out",
    type=options.OutputFile(".html"),
    default=Path("lens.html"),
    help="Page to write, .html.",
)
@options.JSON
@click.option("--device", default="cpu", help="Device: auto, cpu, cuda, … [cpu].")
def lens(
    run: Path,
    text: str,
    second: str | None,
    right: str | None,
    wrong: str | None,
    out: Path,
    json_file: Path | None,
    **loading: Any,
) -> None:
    """Write a page with the predictions of each layer of RUN on TEXT.

    The residual stream after each layer is read by the last norm and the head. Parts of the last
    hidden state, such as heads, have contributions to a difference of logits. SECOND is the target
    of an encoder–decoder, or the second sentence of a pair.
    """
    from regard.edits.lens import lens as read
    from regard.edits.metrics import logit_difference
    from regard.edits.page import save_page
    from regard.errors import UserError
    from regard.runs.run import load

    if (right is None) != (wrong is None):
        raise UserError("--right and --wrong belong together: name two next words, or neither")
    metric = None if right is None or wrong is None else logit_difference(right, wrong)
    found = read(load(run, **loading), text, second, metric=metric)
    save_page(found, out)
    if json_file:
        own = found.contributions
        of_parts = None if own is None else own.rows()
        options.write_json(json_file, {"predictions": found.rows(), "contributions": of_parts})
    click.echo(found.table())
    for line in found.lines():
        click.echo(line)
    click.echo(f"Page: {out}")
