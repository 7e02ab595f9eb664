"""regard attention"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regard.cli import options
from regard.cli.main import Group

if TYPE_CHECKING:
    from regard.attention.contract import Outcome


@click.group(cls=Group)
def attention() -> None:
    """List attention mechanisms, or check that they work on this machine."""


@attention.command("list")
@options.JSON
def list_(json_file: Path | None) -> None:
    """List all mechanisms with supported features, cost and paper.

    Costs are for n tokens and heads of width d; k, m, p, w and b are options of the mechanism.
    """
    from rich.table import Column, Table

    from regard.attention.registry import FEATURES, mechanisms

    known = list(mechanisms().values())
    described = ("time", "state", "paper")
    found = {
        m.name: m.features
        | {"summary": m.summary}
        | {name: getattr(m.config, name) for name in described}
        for m in known
    }
    options.write_json(json_file, found)
    kind, time, state = (Column(name, no_wrap=True) for name in ("kind", "time", "state"))
    features = (Column(feature, justify="center") for feature in FEATURES)
    columns: list[Column | str] = [kind, "description", time, state, *features, "paper"]
    table = Table(*columns, box=None, pad_edge=False)
    for m in known:
        marks = ["•" if feature else "" for feature in m.features.values()]
        table.add_row(m.name, m.summary, m.config.time, m.config.state, *marks, m.config.paper)
    options.print_wide(table)


@attention.command()
@click.argument("names", nargs=-1, metavar="[NAME | FILE.py:CLASS]...")
@options.DEVICE_CPU
@click.option(
    "--precision",
    type=options.Choice(["float64", "float32", "bfloat16"]),
    multiple=True,
    help="Precision to check; repeatable. Default: all three.",
)
@click.option("--inductor", is_flag=True, help="Compile with Inductor, a minute per mechanism.")
def check(names: tuple[str, ...], device: str, precision: tuple[str, ...], inductor: bool) -> None:
    """Check attention mechanisms against their contract on this machine.

    Default: all built-in mechanisms. FILE.py:CLASS is a custom subclass of
    regard.attention.Attention whose arguments all have defaults.
    """
    import torch

    from regard.attention.contract import check as run
    from regard.attention.registry import find, mechanisms
    from regard.environment import ExecutionEnvironment
    from regard.errors import RegardError

    environment = ExecutionEnvironment.choose(device)
    failures = 0
    for mechanism in [find(name) for name in names] or list(mechanisms().values()):
        for dtype in precision or ("float64", "float32", "bfloat16"):
            backend = "inductor" if inductor else "aot_eager"
            outcomes = run(
                mechanism,
                dtype=getattr(torch, dtype),
                device=environment.device,
                backend=backend,
            )
            failures += _report(f"{mechanism.name} in {dtype} on {environment.device}", outcomes)
    if failures:
        raise RegardError(f"{failures} checks of the contract fail; see above")


def _report(title: str, outcomes: Iterable["Outcome"]) -> int:
    """Print failed checks, each once with its cases; return their number."""
    made = 0
    broken: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        made += 1
        if outcome.failure:
            broken.setdefault(outcome.check, []).append(outcome)
    if not broken:
        click.echo(f"✓ {title}: {made} checks passed")
    for check_name, failed in broken.items():
        first = failed[0]
        more = f" (and {len(failed) - 1} more cases)" if len(failed) > 1 else ""
        click.echo(f"✗ {title}: {check_name}: with {first.case}: {first.failure}{more}")
    return len(broken)
