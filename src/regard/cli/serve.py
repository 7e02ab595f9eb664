"""regard serve"""

from contextlib import suppress
from pathlib import Path

import click


@click.command()
@click.argument("models", nargs=-1, metavar="[RUN|hf:MODEL]...")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8765,
    show_default=True,
    help="0: any that is free.",
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1, …")
def serve(models: tuple[str, ...], port: int, device: str) -> None:
    """Serve a page on which models read and write, and each head is looked at.

    A model is a RUN, or hf: and a folder, or a name in the local cache, of Hugging Face. Without
    any, the page offers all runs below the folder runs. Only this machine can open it.
    """
    from regard.errors import UserError

    try:
        from regard.serve.server import serve as serve_offers
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("starlette", "uvicorn"):
            raise
        raise UserError(
            f"regard serve needs {missing}, which isn't installed: pip install 'regard[serve]'"
        ) from None
    from regard.runs.machine import Machine
    from regard.serve.offers import find_runs, offer

    offers = offer(models or find_runs(Path("runs")))
    chosen = Machine.choose(device).device
    click.echo(f"Models: {', '.join(one.name for one in offers)}")
    with suppress(KeyboardInterrupt):  # not in every case does the server pass it on
        serve_offers(
            offers,
            port=port,
            device=chosen,
            ready=lambda url: click.echo(f"Page: {url} (Ctrl-C stops it)"),
        )
    click.echo("Stopped.")
