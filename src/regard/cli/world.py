"""regard world"""

from pathlib import Path

import click

from regard.cli import options


@click.command()
@options.OUT
@click.argument("settings", nargs=-1)
def world(out: Path, settings: tuple[str, ...]) -> None:
    """Write the fictional world to files, in the form of the real birth-places data.

    SETTINGS are people=N, unseen=N, places=N, skew=X, correlation=X, biographies=N, augment=BOOL,
    seed=N.
    """
    from regard.runs.toml import override
    from regard.tasks.world import WorldConfig, make_world
    from regard.tasks.world_files import save_world

    made = make_world(override(WorldConfig(), settings))
    save_world(made, out)
    people = ", ".join(f"{len(made.group(g))} {g}" for g in ("asked", "told", "unseen"))
    click.echo(f"{len(made.documents)} biographies; people: {people}")
    click.echo(f"World: {out}")
