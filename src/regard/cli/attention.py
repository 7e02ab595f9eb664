"""regard attention"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regard.cli import options

if TYPE_CHECKING:
    from regard.attention.contract import Outcome


@click.group()
def attention() -> None:
    """What the attention mechanisms can do, and whether they do it here."""


@attention.command("list")
@options.JSON
def list_(json_file: Path | None) -> None:
    """All mechanisms: what each can do, its cost, its paper.

    For n tokens, heads of width d; k, m, p, w and b are settings of the mechanism.
    """
    from rich.console import Console
    from rich.table import Table

    from regard.attention.registry import mechanisms

    known = list(mechanisms().values())
    abilities = {
        "causal": "alignment",
        "padding": "key_lengths",
        "documents": "document_ids",
        "any mask": "allowed",
        "bias": "bias",
        "cross": "cross",
        "decodes": "decoding",
    }
    options.write_json(
        json_file,
        {
            m.name: {name: m.type.supports.has(field) for name, field in abilities.items()}
            | {"summary": m.summary, "time": m.time, "state": m.state, "paper": m.paper}
            for m in known
        },
    )
    table = Table(box=None, pad_edge=False)
    for column in ("kind", "what it is", "time", "state"):
        table.add_column(column, no_wrap=column != "what it is")
    for column in abilities:
        table.add_column(column, justify="center")
    table.add_column("paper")
    for m in known:
        marks = ["•" if m.type.supports.has(field) else "" for field in abilities.values()]
        table.add_row(m.name, m.summary, m.time, m.state, *marks, m.paper)
    console = Console()
    console.print(table) if console.is_terminal else Console(width=200).print(table)


@attention.command()
@click.argument("names", nargs=-1, metavar="[NAME | FILE.py:CLASS]...")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1, …")
@click.option(
    "--precision",
    type=click.Choice(["float64", "float32", "bfloat16"]),
    multiple=True,
    help="All three if not given; may be repeated.",
)
@click.option("--inductor", is_flag=True, help="Compile for speed, which takes a minute each.")
def check(names: tuple[str, ...], device: str, precision: tuple[str, ...], inductor: bool) -> None:
    """Run the contract of attention mechanisms on this machine, and say in words what fails.

    Without a NAME, all of them. One of your own: FILE.py:CLASS, a subclass of
    regard.attention.Attention that can be made without arguments.
    """
    import torch

    from regard.attention.contract import check as run
    from regard.attention.registry import find, mechanisms
    from regard.errors import RegardError
    from regard.runs.machine import Machine

    machine = Machine.choose(device)
    failures = 0
    for mechanism in [find(name) for name in names] or list(mechanisms().values()):
        for dtype in precision or ("float64", "float32", "bfloat16"):
            backend = "inductor" if inductor else "aot_eager"
            outcomes = run(
                mechanism,
                dtype=getattr(torch, dtype),
                device=machine.device,
                backend=backend,
            )
            failures += _report(f"{mechanism.name} in {dtype} on {machine.device}", outcomes)
    if failures:
        raise RegardError(f"{failures} checks of the contract fail, as told above")


def _report(title: str, outcomes: Iterable["Outcome"]) -> int:
    """Print what fails, each check with its cases together; how many checks do."""
    made = 0
    broken: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        made += 1
        if outcome.failure:
            broken.setdefault(outcome.check, []).append(outcome)
    if not broken:
        click.echo(f"✓ {title}: {made} checks, all kept")
    for check_name, failed in broken.items():
        first = failed[0]
        more = f" (and {len(failed) - 1} more cases)" if len(failed) > 1 else ""
        click.echo(f"✗ {title}: {check_name}: with {first.case}: {first.failure}{more}")
    return len(broken)
