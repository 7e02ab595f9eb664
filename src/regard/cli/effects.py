"""regard effects"""

from pathlib import Path
from typing import Any

import click

from regard.cli import options
from regard.cli.look import LOADING, MODEL, open_run


@click.command()
@options.TRUST_CODE
@MODEL
@click.argument("pairs", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--sites",
    default="heads",
    help="Sites: heads, layers, residual, tokens or trace, or names, separated by commas.",
)
@click.option(
    "--by",
    default="patching,attribution",
    metavar="METHODS",
    help="Methods: patching, attribution, or both.",
)
@click.option(
    "--controls",
    type=click.IntRange(min=0),
    help="Number of random sets of channels, for heads. Default: 20.",
)
@options.SEED_0
@click.option(
    "--out",
    type=options.OutputFile(".html"),
    default=Path("effects.html"),
    help="Page to write, .html.",
)
@options.JSON
@LOADING
def effects(
    model: str,
    pairs: Path,
    sites: str,
    by: str,
    controls: int | None,
    seed: int,
    out: Path,
    json_file: Path | None,
    **loading: Any,
) -> None:
    """Measure the effect of each site of a model on PAIRS, and write a page.

    The model is a RUN, or hf: with a folder or a name in the local Hugging Face cache.
    PAIRS is a TSV file with the columns clean, corrupt, right and wrong: two texts of equal
    length, and two next words. The effect of a site is the share of the difference between clean
    and corrupt that its clean value restores in the corrupt text.
    """
    from regard.edits.effects import effects as measure
    from regard.edits.metrics import logit_difference
    from regard.edits.page import save_page
    from regard.edits.pairs import read_pairs
    from regard.edits.patching import SITES

    read = read_pairs(pairs)
    found = measure(
        open_run(model, **loading),
        read.clean,
        read.corrupt,
        metric=logit_difference(read.right, read.wrong),
        sites=sites.split(",") if sites not in SITES and "." in sites else sites,
        by=by.split(","),
        controls=controls,
        seed=seed,
    )
    save_page(found, out)
    if json_file:
        options.write_json(json_file, found.rows())
    click.echo(found.table())
    for line in found.lines():
        click.echo(line)
    click.echo(f"Page: {out}")
