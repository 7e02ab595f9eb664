"""regard config and regard info"""

from pathlib import Path

import click

from regard.cli import options


@click.command()
@options.RECIPE
@click.argument("overrides", nargs=-1)
def config(recipe: str | None, overrides: tuple[str, ...]) -> None:
    """Print a whole recipe as commented TOML; save it, change it, and give it as --recipe FILE."""
    from regard.runs.toml import to_toml

    chosen = options.choose_recipe(recipe, "plain", overrides, None)
    click.echo(to_toml(chosen, comments=True), nl=False)


@click.command()
@options.RUN
def info(run: Path) -> None:
    """What RUN is, how it was made, how far it got."""
    from regard.errors import UserError
    from regard.runs.checkpoints import newest_checkpoint
    from regard.runs.run import Run, load_origin, load_tokenizer
    from regard.runs.toml import read_recipe

    if not (run / "config.toml").is_file():
        raise UserError(f"{run}: is no run: it has no config.toml")
    recipe, origin = read_recipe(run / "config.toml"), load_origin(run)
    untrained = Run.new(run, recipe, load_tokenizer(run), origin)
    checkpoint = newest_checkpoint(run)
    family = recipe.model.__struct_config__.tag
    facts = {
        "run": run,
        "model": f"{family}, {recipe.model.summary}",
        "parameters": f"{untrained.n_parameters:,}",
        "tokenizer": f"{untrained.tokenizer.kind}, {untrained.tokenizer.size:,} tokens, "
        f"fingerprint {untrained.tokenizer.fingerprint}",
        "seed": recipe.seed,
        **origin,
        "weights": "yes" if (run / "model.safetensors").exists() else "none yet",
    }
    if checkpoint:
        progress = checkpoint.progress
        facts |= {
            "steps done": f"{progress.step:,} of {origin.get('steps', 0):,}",
            "time": f"{progress.seconds:,.1f} s",
            "best validation loss": "not measured"
            if progress.best_loss is None
            else f"{progress.best_loss:.4f} after step {progress.best_step:,}",
            **{f"trained with {name}": value for name, value in checkpoint.environment.items()},
        }
    for name, value in facts.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(f"{name + ':':<26}{shown}")
