"""regard effects, regard paths, regard faithfulness"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options
from regard.cli.look import LOADING, MODEL, open_run

if TYPE_CHECKING:
    from regard.edits.faithfulness import Faithfulness
    from regard.edits.found import Effects
    from regard.edits.page import Measured
    from regard.edits.paths import Paths

PAIRS = click.argument("pairs", type=click.Path(exists=True, dir_okay=False, path_type=Path))
KINDS = "Sites: heads, layers, residual, tokens or trace, or names, separated by commas."
SITES = click.option("--sites", default="heads", help=KINDS)
STEPS = click.option(
    "--steps",
    type=click.IntRange(min=0),
    default=0,
    help="Number of points between both texts for the gradients of attribution. "
    "Default: the corrupt text alone.",
)


@click.command()
@MODEL
@PAIRS
@SITES
@click.option(
    "--by",
    default="patching,attribution",
    metavar="METHODS",
    help="Methods: patching, attribution, or both.",
)
@STEPS
@click.option(
    "--controls",
    type=click.IntRange(min=0),
    help="Number of random sets of channels, for heads. Default: 20.",
)
@options.SEED_0
@options.page("effects.html")
@options.JSON
@LOADING
def effects(
    sites: str, by: str, steps: int, controls: int | None, seed: int, **common: Any
) -> None:
    """Measure the effect of each site of a model on PAIRS, and write a page.

    The model is a RUN, or hf: with a folder or a name in the local Hugging Face cache.
    PAIRS is a TSV file with the columns clean, corrupt, right and wrong: two texts of equal
    length, and two next words. The effect of a site is the share of the difference between clean
    and corrupt that its clean value restores in the corrupt text.
    """
    from regard.edits.effects import effects as measure

    chosen = partial(
        measure,
        sites=_sites(sites),
        by=by.split(","),
        steps=steps,
        controls=controls,
        seed=seed,
    )
    _report(chosen, **common)


@click.command()
@MODEL
@PAIRS
@click.option("--senders", default="heads", metavar="SITES", help=KINDS)
@click.option(
    "--receivers",
    metavar="SITES",
    help="Names of sites, separated by commas, such as decoder.1.keys.0. Default: none.",
)
@options.page("paths.html")
@options.JSON
@LOADING
def paths(senders: str, receivers: str | None, **common: Any) -> None:
    """Measure direct and total effects of sites of a model on PAIRS, and write a page.

    The model is a RUN, or hf: with a folder or a name in the local Hugging Face cache. PAIRS is a
    file as for regard effects. The total effect of a site, the sender, is that of regard effects;
    its direct effect is that through the residual stream alone, without later layers. With
    --receivers, also measures its effect through each receiver alone.
    """
    from regard.edits.paths import paths as measure

    ends = () if receivers is None else receivers.split(",")
    _report(partial(measure, senders=_sites(senders), receivers=ends), **common)


@click.command()
@MODEL
@PAIRS
@SITES
@click.option(
    "--by",
    type=click.Choice(["patching", "attribution"]),
    default="patching",
    help="Method of the effects that order the sites.",
)
@STEPS
@options.page("faithfulness.html")
@options.JSON
@LOADING
def faithfulness(sites: str, by: str, steps: int, **common: Any) -> None:
    """Measure the faithfulness of circuits of a model on PAIRS, and write a page.

    The model is a RUN, or hf: with a folder or a name in the local Hugging Face cache. PAIRS is a
    file as for regard effects. The first, third, … pairs order the sites by their effects. On the
    other pairs, the model reads the clean text with all but the first k sites set to their values
    on the corrupt text. Faithfulness is 1 if the metric equals that of the whole model, and 0 if it
    equals that with no site. CPR is the area under it, CMD the area between it and 1.
    """
    from regard.edits.faithfulness import faithfulness as measure

    _report(partial(measure, sites=_sites(sites), by=by, steps=steps), **common)


def _sites(text: str) -> str | list[str]:
    """Return a kind of sites, or a list of their names."""
    return text.split(",") if "." in text else text


def _report(
    measure: "Callable[..., Effects | Paths | Faithfulness]",
    *,
    model: str,
    pairs: Path,
    out: Path,
    json_file: Path | None,
    **loading: Any,
) -> None:
    """Measure a model on a file of pairs, and report it."""
    from regard.edits.metrics import read_pairs

    read = read_pairs(pairs)
    run = open_run(model, **loading)
    found = measure(run, read.clean, read.corrupt, metric=read.metric)
    report_measurement(found, found.rows(), out, json_file)


def report_measurement(found: "Measured", data: Any, out: Path, json_file: Path | None) -> None:
    """Write the page of a measurement, and its data if a file is named, and print its table."""
    from regard.edits.page import save_page

    save_page(found, out)
    options.write_json(json_file, data)
    click.echo(found.table())
    for line in found.lines():
        click.echo(line)
    click.echo(f"Page: {out}")
