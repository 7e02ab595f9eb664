"""regard lens"""

from pathlib import Path
from typing import Any

import click

from regard.cli import options
from regard.cli.effects import report_measurement
from regard.cli.look import LOADING, MODEL, open_run
from regard.errors import UserError


@click.command()
@MODEL
@click.argument("text")
@click.argument("second", required=False)
@click.option("--right", help="First word of the logit difference. Default: most probable.")
@click.option("--wrong", help="Second word of it. Default: second most probable.")
@options.page("lens.html")
@options.JSON
@LOADING
def lens(
    model: str,
    text: str,
    second: str | None,
    right: str | None,
    wrong: str | None,
    out: Path,
    json_file: Path | None,
    **loading: Any,
) -> None:
    """Write a page with the predictions of each layer of a model on TEXT.

    The model is a RUN, or hf: with a folder or a name in the local Hugging Face cache. The final
    norm and the head are applied to the residual stream after each layer. The page also shows the
    contributions of parts, such as heads, to a logit difference. SECOND is the target of an
    encoder–decoder, or the second sentence of a pair.
    """
    from regard.edits.lens import lens as read
    from regard.edits.metrics import logit_difference

    if (right is None) != (wrong is None):
        raise UserError("--right and --wrong belong together: name two next words, or neither")
    metric = None if right is None or wrong is None else logit_difference(right, wrong)
    found = read(open_run(model, **loading), text, second, metric=metric)
    own = found.contributions
    of_parts = None if own is None else own.rows()
    data = {"predictions": found.rows(), "contributions": of_parts}
    report_measurement(found, data, out, json_file)
