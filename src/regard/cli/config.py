"""regard config, regard info, regard import-hf and regard export-hf"""

from pathlib import Path
from textwrap import fill

import click

from regard.cli import options

_UNPRINTED = ("run_folder", "ancestors")
"""Fields of origin.json that `regard info` doesn't print verbatim."""


@click.command()
@options.TRUST_CODE
@options.RECIPE
@click.argument("overrides", nargs=-1)
def config(trust_code: bool, recipe: str | None, overrides: tuple[str, ...]) -> None:
    """Print a recipe as commented TOML, to edit and pass as --recipe FILE.

    OVERRIDES are settings such as model.n_layers=6.
    """
    from regard.runs.recipes import find_recipe
    from regard.toml import to_commented_toml

    options.trust_named(recipe, trust=trust_code)
    click.echo(to_commented_toml(find_recipe(recipe or "default", overrides)), nl=False)


@click.command()
def recipes() -> None:
    """List the recipes with purpose, model family and training."""
    from regard.runs.recipes import PURPOSES, RECIPES

    for name, recipe in RECIPES.items():
        family = recipe.model.__struct_config__.tag
        training = recipe.training
        length = f"{training.steps:,} steps" if training.steps else f"{training.epochs:,} epochs"
        purpose = PURPOSES.get(name, f"train {name}")
        click.echo(f"{name:<23}{purpose} ({family}, {length} of {training.batch} rows)")


@click.command()
@options.RUN
def info(run: Path, trust_code: bool) -> None:
    """Show configuration, provenance and progress of RUN."""
    from regard.files import read_table
    from regard.runs.recipe import load_recipe
    from regard.runs.run import Run
    from regard.runs.start import ancestry
    from regard.text.tokenizer import Tokenizer
    from regard.training.checkpoint import newest_checkpoint

    recipe, origin = load_recipe(run, trust_code=trust_code), read_table(run / "origin.json")
    untrained = Run.new(run, recipe, Tokenizer.load(run), origin)
    checkpoint, hashed = newest_checkpoint(run), untrained.n_hashed_parameters
    family = recipe.model.__struct_config__.tag
    facts = {
        "run": run,
        "model": f"{family}, {recipe.model.summary}",
        "parameters": f"{untrained.n_parameters:,}",
        **({"hashed parameters": f"{hashed:,}"} if hashed else {}),
        "tokenizer": f"{type(untrained.tokenizer.native.model).__name__}, "
        f"{untrained.tokenizer.size:,} tokens, "
        f"fingerprint {untrained.tokenizer.fingerprint}",
        "seed": recipe.seed,
        **{name: value for name, value in origin.items() if name not in _UNPRINTED},
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
    if "ancestors" in origin:
        click.echo("\n".join(["provenance:", *ancestry(run, origin)]))


@click.command("import-hf")
@click.argument("folder", type=options.PATH)
@options.NEW
def import_hf(folder: Path, out: Path) -> None:
    """Convert the Hugging Face model in FOLDER to a run.

    FOLDER contains config.json, model.safetensors and tokenizer.json. The model is a GPT-2,
    GPT-NeoX, Llama, Mistral, Qwen2, Qwen3, Qwen3-Next, Gemma 1 to 3, BERT, RoBERTa, DistilBERT, T5
    or BART.
    """
    from regard.huggingface.convert.folder import import_folder
    from regard.text.tokenizer import ROLES

    run = import_folder(folder, out)
    tokenizer, model = run.tokenizer, run.recipe.model
    click.echo(f"model: {model.__struct_config__.tag}, {model.summary}")
    click.echo(f"parameters: {run.n_parameters:,}")
    roles = {role: getattr(tokenizer.special, role) for role in ROLES}
    shown = ", ".join(f"{role} {i}" for role, i in roles.items() if i is not None)
    click.echo(f"tokenizer: {tokenizer.size:,} tokens; special ids: {shown}")
    _show_dropped(run.origin["dropped"])
    click.echo(f"Run: {run.path}")


@click.command("export-hf")
@options.RUN
@options.NEW
@click.option(
    "--family",
    metavar="NAME",
    help="Model type to export as. Default: the imported one, or the first with this architecture.",
)
def export_hf(run: Path, out: Path, family: str | None, trust_code: bool) -> None:
    """Convert RUN to a folder that Hugging Face transformers loads.

    The architecture must be that of a model type which import-hf reads. Otherwise the error
    names the nearest; --family NAME lists all differences from one.
    """
    from regard.huggingface.convert.export import export_run
    from regard.runs.run import Run

    exported = export_run(Run.load(run, trust_code=trust_code), out, family)
    click.echo(f"model_type: {exported.model_type}")
    _show_dropped(exported.dropped)
    click.echo(f"Folder: {out}")


def _show_dropped(dropped: list[str]) -> None:
    if dropped:
        text = f"dropped: {', '.join(dropped)}"
        click.echo(fill(text, 80, subsequent_indent="  ", break_long_words=False))
