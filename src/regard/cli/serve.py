"""regard serve"""

from contextlib import suppress
from pathlib import Path

import click

from regard.cli import options
from regard.errors import UserError, require_packages


@click.command()
@options.TRUST_CODE
@click.argument("models", nargs=-1, type=options.FILLED, metavar="[RUN|hf:MODEL]...")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8765,
    help="Port; 0 for any free one.",
)
@options.EDIT
@options.DEVICE_CPU
def serve(
    models: tuple[str, ...], port: int, edit: Path | None, device: str, trust_code: bool
) -> None:
    """Serve a page that shows the attention of models while they read and generate.

    A model is a RUN, or hf: followed by a folder or a name in the local Hugging Face cache.
    Default: all runs below the folder runs. The page can be opened only on this machine. --edit
    sets its initial edits.
    """
    require_packages("regard serve needs", "serve", "starlette", "uvicorn")
    from regard.environment import ExecutionEnvironment
    from regard.runs.code import trust_code as trust
    from regard.serve.available_models import find_models, find_runs
    from regard.serve.server import serve as serve_models

    names = models or find_runs(Path("runs"))
    if trust_code:
        for name in names:
            trust(Path(name))
    found = find_models(names)
    chosen, text = ExecutionEnvironment.choose(device).device, _text_of(edit)
    click.echo(f"Models: {', '.join(one.name for one in found)}")
    with suppress(KeyboardInterrupt):  # the server does not always catch it
        serve_models(
            found,
            port=port,
            device=chosen,
            edit=text,
            ready=lambda url: click.echo(f"Page: {url} (Ctrl-C stops it)"),
        )
    click.echo("Stopped.")


def _text_of(edit: Path | None) -> str:
    """Return the edits of a file as text for the page.

    Raises:
        UserError: the edits are invalid, or too long for a request.
    """
    from regard.edits.edit import load_edit
    from regard.serve.schemas import MAX_CHARACTERS

    if edit is None:
        return ""
    text = load_edit(edit).to_toml()
    if len(text) > MAX_CHARACTERS:
        raise UserError(
            f"{edit}: has {len(text):,} characters, and the page takes {MAX_CHARACTERS:,}; shorten "
            "it, or use regard look --edit"
        )
    return text
