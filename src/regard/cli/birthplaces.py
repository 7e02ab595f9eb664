"""regard birthplaces"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options
from regard.errors import UserError, alternatives

if TYPE_CHECKING:
    from regard.experiments.birthplaces import Data, Score
    from regard.experiments.stages import Stages
    from regard.training.loop import ExecutionOptions


@click.command()
@click.argument("overrides", nargs=-1)
@click.option(
    "--data",
    type=options.PATH,
    envvar="REGARD_BIRTHPLACES",
    help="Folder of texts and questions [$REGARD_BIRTHPLACES].",
)
@click.option(
    "--out",
    type=options.FOLDER,
    default=Path("runs/birthplaces"),
    help="Folder for the runs, one subfolder per seed.",
)
@options.RECIPE
@options.TRUST_CODE
@click.option(
    "--seed",
    "seeds",
    type=options.SEEDS,
    multiple=True,
    help="Random seed; repeatable. Default: the recipe's.",
)
@click.option(
    "--held-out",
    metavar="N",
    type=options.COUNT,
    help="Number of people whose training questions are evaluated, in place of birth_dev.tsv.",
)
@click.option(
    "--count-operations", is_flag=True, help="Count floating-point operations; a sixth slower."
)
@click.option("--arm", "arms", multiple=True, help="Arm to train; repeatable. Default: all three.")
@options.JSON
@options.EXECUTION
def birthplaces(
    overrides: tuple[str, ...],
    data: Path | None,
    out: Path,
    recipe: str | None,
    trust_code: bool,
    seeds: tuple[int, ...],
    arms: tuple[str, ...],
    held_out: int | None,
    count_operations: bool,
    json_file: Path | None,
    **execution: Any,
) -> None:
    """Measure the gain from pretraining: train on sentences about people, ask for birthplaces.

    Existing runs are resumed. To choose a recipe without the questions of birth_dev.tsv, hold out
    training questions. OVERRIDES are settings of the recipe, by default "modern", such as
    training.steps=600 for pretraining, questions.epochs=3 and finetuning.epochs=3 for the others.
    `regard world` writes data of this form.
    """
    from dataclasses import replace

    import msgspec

    from regard.experiments.birthplaces import ARMS, Data
    from regard.experiments.stages import choose_stages
    from regard.training.loop import ExecutionOptions

    if data is None:
        raise UserError("no data: pass their folder as --data or in REGARD_BIRTHPLACES")
    if unknown := sorted(set(arms) - set(ARMS)):
        raise UserError(f"--arm {unknown[0]}: no such arm; {alternatives(unknown[0], ARMS)}")
    options.trust_named(recipe, trust=trust_code)
    chosen = replace(ExecutionOptions.choose(**execution), count_operations=count_operations)
    scores = []
    for seed in dict.fromkeys(seeds or [None]):
        settings = [*overrides, *([] if seed is None else [f"seed={seed}"])]
        stages = choose_stages(recipe or "modern", settings)
        read, name = Data.read(data, stages.pretraining), f"seed-{stages.pretraining.seed}"
        if held_out is not None:
            read, name = read.held_out(held_out), f"{name}-held-out-{held_out}"
        scores += _measure(read, out / name, stages, chosen, list(dict.fromkeys(arms or ARMS)))
    _print_table(scores)
    _print_aurocs(scores)
    _print_risk(scores)
    facts = {
        "recipe": recipe or "modern",
        "overrides": list(overrides),
        "held_out": held_out,
        "machine": chosen.environment.describe(),
        "scores": msgspec.to_builtins(scores),
    }
    options.write_json(json_file, facts)


def _measure(
    data: "Data",
    folder: Path,
    stages: "Stages",
    execution: "ExecutionOptions",
    arms: Sequence[str],
) -> "list[Score]":
    """Train and evaluate the arms of one seed, and write their report."""
    from regard.experiments.birthplaces import birthplaces as run_experiment
    from regard.experiments.birthplaces_report import birthplaces_report
    from regard.training.loop import InterruptedTraining

    try:
        found = run_experiment(data, folder, stages, execution, arms)
    except InterruptedTraining:
        raise InterruptedTraining(
            f"stopped and saved in {folder}; repeat the command to resume"
        ) from None
    birthplaces_report(found, data, execution.environment).save(folder / "report.html")
    click.echo(f"Report: {folder / 'report.html'}")
    return [arm.score for arm in found.values()]


def _print_table(scores: "list[Score]") -> None:
    from statistics import mean

    from rich.console import Console
    from rich.table import Table

    table = Table(title="People in the text only", min_width=60)
    counted = ["TFLOP"] if all(score.operations is not None for score in scores) else []
    for column in ("arm", "seed", "accuracy [95 %]", "training time, s", *counted):
        table.add_column(column, justify="left" if column == "arm" else "right", no_wrap=True)
    for score in scores:
        table.add_row(
            score.arm,
            str(score.seed),
            f"{score.accuracy:.1%} [{score.low:.1%}, {score.high:.1%}]",
            f"{score.training_seconds:.0f}",
            *([f"{(score.operations or 0) / 1e12:,.1f}"] if counted else []),
        )
    if len({score.seed for score in scores}) > 1:
        table.add_section()
        for arm in dict.fromkeys(score.arm for score in scores):
            values = [score.accuracy for score in scores if score.arm == arm]
            table.add_row(arm, "mean", f"{mean(values):.1%}")
    Console().print(table)


def _print_aurocs(scores: "list[Score]") -> None:
    """Print the AUROC of each signal for both kinds of doubt, seed by seed."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="AUROC [95 %]", min_width=60)
    for column in ("arm", "signal", "seed", "right / wrong", "mentioned / absent"):
        table.add_column(column, justify="right" if column == "seed" else "left", no_wrap=True)
    rows = [
        (score.arm, signal, str(score.seed), *(str(kind.get(signal, "")) for kind in kinds))
        for score in scores
        for kinds in [(score.right_or_wrong, score.mentioned_or_absent)]
        for signal in {**kinds[0], **kinds[1]}
    ]
    for row in sorted(rows, key=lambda row: row[:2]):
        table.add_row(*row)
    if rows:
        Console().print(table)


def _print_risk(scores: "list[Score]") -> None:
    """Print the share of wrong answers if only the most confident ones are given."""
    from rich.console import Console
    from rich.table import Table

    from regard.experiments.birthplaces import COVERAGES

    table = Table(title="Share of wrong answers, the most confident first", min_width=60)
    for column in ("arm", "seed", *(f"{coverage:.0%} given" for coverage in COVERAGES)):
        table.add_column(column, justify="left" if column == "arm" else "right", no_wrap=True)
    for score in sorted(scores, key=lambda score: score.arm):
        table.add_row(score.arm, str(score.seed), *(f"{risk:.1%}" for risk in score.risk))
    Console().print(table)
