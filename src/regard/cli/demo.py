"""regard demo"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options

if TYPE_CHECKING:
    from regard.experiments.recall import Recall

USUAL = Path("runs/demo")
LEGEND = (
    "AUROC: share of pairs, of a person in the text only and an absent one, in which the signal is "
    "higher for the former; 0.5 is chance. Chosen: the best signal on half of the people; AUROCs "
    "are of the other half."
)


@click.command()
@click.option("--out", type=options.PATH, help="New folder [runs/demo].")
@options.SEED_0
@options.JSON
@options.EXECUTION
@click.argument("overrides", nargs=-1)
def demo(
    out: Path | None,
    seed: int,
    json_file: Path | None,
    overrides: tuple[str, ...],
    **execution: Any,
) -> None:
    """Pretrain on a fictional world, and separate recalled from invented answers.

    OVERRIDES are settings of the recipe "demo", such as training.steps=500, and of the world,
    such as world.correlation=0.5. training.* is for the two models trained on text; finetuning.*
    and questions.*, such as questions.steps=100, are for the two trained on questions alone.
    """
    from dataclasses import replace

    from regard.config import override
    from regard.corpus.index import NO_INDEX, can_index
    from regard.experiments.recall import ExpectedTime, recall
    from regard.experiments.recall_report import recall_report
    from regard.experiments.stages import choose_stages
    from regard.tasks.world import WorldConfig
    from regard.training.loop import ExecutionOptions, InterruptedTraining

    of_world = [o.removeprefix("world.") for o in overrides if o.startswith("world.")]
    of_recipe = [o for o in overrides if not o.startswith("world.")]
    stages = choose_stages("demo", [f"seed={seed}", *of_recipe])
    world = override(WorldConfig(seed=stages.pretraining.seed), of_world)
    chosen = ExecutionOptions.choose(**execution)
    if not overrides:
        chosen = replace(chosen, loggers=(ExpectedTime(chosen.environment),))
    folder = out or _unused(USUAL)
    click.echo(f"Folder: {folder}{'' if out or folder == USUAL else f', since {USUAL} exists'}")
    try:
        found = recall(folder, world, stages, chosen)
    except InterruptedTraining:
        raise click.Abort from None
    page = folder / "report.html"
    recall_report(found, chosen.environment).save(page)
    options.write_json(json_file, found.figures())
    _print_table(found)
    if not can_index():
        click.echo(NO_INDEX)
    click.echo(f"Report: {page}")


def _unused(path: Path) -> Path:
    """Return the path, or the first of path-2, path-3, … that doesn't exist."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def _print_table(found: "Recall") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="People in the text only", caption=LEGEND, caption_justify="left")
    table.add_column("")
    table.add_column("accuracy [95 %]", justify="right")
    table.add_column("folder")
    saved = {name: run.path.name for name, run in found.arms.items() if run.path.is_dir()}
    for name, interval in found.accuracies.items():
        table.add_row(name, interval.percent(), saved.get(name, "–"))
    table.add_section()
    table.add_row("text only or absent?", "AUROC")
    for name, area in found.chosen.all_aurocs.items():
        mark = " (chosen)" if name == found.chosen.signal else ""
        table.add_row(f"  by {name}{mark}", f"{area:.3f}")
    table.add_section()
    table.add_row("time", f"{found.seconds:.0f} s")
    table.add_row("peak memory", found.peak_memory)
    Console().print(table)
