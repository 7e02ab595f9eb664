"""regard import-hf"""

from pathlib import Path

import click

from regard.cli import options


@click.command("import-hf")
@click.argument("folder", type=click.Path(path_type=Path))
@options.OUT
def import_hf(folder: Path, out: Path) -> None:
    """Make a run of the GPT-2 or BERT in FOLDER, as Hugging Face transformers saves them.

    FOLDER holds config.json, model.safetensors and tokenizer.json, or the older vocab.json and
    merges.txt, or vocab.txt.
    """
    from regard.runs.hugging_face import import_folder
    from regard.text.vocabulary import MASK

    run = import_folder(folder, out)
    tokenizer, model = run.tokenizer, run.recipe.model
    click.echo(f"model: {model.__struct_config__.tag}, {model.summary}")
    click.echo(f"parameters: {run.n_parameters:,}")
    click.echo(f"tokenizer: {tokenizer.size:,} tokens; the mask is {tokenizer.decode([MASK])}")
    click.echo(f"Run: {run.path}")
