"""regard look, regard patterns"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from regard.cli import options

if TYPE_CHECKING:
    from regard.explorer.look import View
    from regard.explorer.profile import Head
    from regard.explorer.subjects import Subject
    from regard.runs.run import Run

MODEL = click.argument("model", metavar="RUN|hf:MODEL")
DOWNLOAD = click.option(
    "--download", is_flag=True, help="Fetch an hf: model that isn't in the local cache."
)


@click.command()
@MODEL
@click.argument("text")
@click.argument("second", required=False)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Page to write, or a .png or .svg [look.html]."
)
@click.option("--layers", metavar="0,2-3", help="Only these layers, from 0.")
@click.option("--heads", metavar="0,2-3", help="Only these heads, from 0.")
@click.option(
    "--steps", metavar="LAYER.HEAD", multiple=True, help="Shown step by step [the first]."
)
@click.option("--vs", help="Another run, or hf:MODEL, side by side.")
@click.option("--vs-untrained", is_flag=True, help="The same model before its training, beside it.")
@click.option("--vs-text", help="Another text, side by side.")
@click.option("--word", help="The word that is compared between sides [the first of both].")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1, …")
@DOWNLOAD
def look(
    model: str,
    text: str,
    second: str | None,
    out: Path | None,
    layers: str | None,
    heads: str | None,
    steps: tuple[str, ...],
    vs: str | None,
    vs_untrained: bool,
    vs_text: str | None,
    word: str | None,
    device: str,
    download: bool,
) -> None:
    """Write a page that shows the attention of a model while it reads TEXT.

    The model is a RUN, or hf: and a folder, or a name in the local cache, of Hugging Face. SECOND
    is what an encoder–decoder writes about the text, or the second sentence of a pair.
    """
    from regard.errors import UserError
    from regard.explorer.look import look as look_at
    from regard.explorer.look import untrained
    from regard.explorer.subjects import open_subject
    from regard.runs.machine import Machine

    options.check_places(out)
    chosen = Machine.choose(device).device
    this = open_subject(model, device=chosen, download=download)
    view = look_at(this, text, second)
    others = [(this, vs_text)] if vs_text else []
    others += [(open_subject(vs, device=chosen, download=download), text)] if vs else []
    others += [(untrained(this), text)] if vs_untrained else []
    for other, its_text in others:
        view = view.beside(look_at(other, its_text, second))
    view = view.only(_numbers("--layers", layers), _numbers("--heads", heads))
    if word is not None:
        if not others:
            raise UserError(
                f"--word {word}: is compared between two sides; add --vs-text, --vs or "
                "--vs-untrained"
            )
        view = view.about(word)
    if steps:
        view = view.in_steps([_step(step, view) for step in steps])
    place = _save(view, out)
    click.echo(f"Look: {place.resolve()}")


@click.command()
@MODEL
@click.argument("texts", nargs=-1)
@click.option(
    "--random",
    metavar="N",
    type=click.IntRange(min=1),
    help="Read N random tokens twice, too; this is done without TEXTS as well [50, if they fit].",
)
@click.option(
    "--gradients",
    is_flag=True,
    help="How much the loss of TEXTS rides on each head, of a model that predicts tokens.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Picture to write, .png or .svg [patterns.png]."
)
@options.JSON
@click.option("--untrained", "fresh", is_flag=True, help="The same model before its training.")
@options.SEED
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1, …")
@DOWNLOAD
def patterns(
    model: str,
    texts: tuple[str, ...],
    random: int | None,
    gradients: bool,
    out: Path | None,
    json_file: Path | None,
    fresh: bool,
    seed: int | None,
    device: str,
    download: bool,
) -> None:
    """What each head of a model looks at in TEXTS, as numbers and as a picture.

    The model is a RUN, or hf: and a folder, or a name in the local cache, of Hugging Face. A TEXT
    that is a file stands for its lines.
    """
    from rich.console import Console
    from rich.table import Table

    from regard.errors import UserError
    from regard.explorer.look import untrained
    from regard.explorer.profile import draw_profile, mean_entropy, sinks
    from regard.explorer.subjects import open_subject
    from regard.runs.files import write_file
    from regard.runs.machine import Machine

    place = out or Path("patterns.png")
    options.check_places(place, json_file)
    if gradients and not texts:
        raise UserError("--gradients: needs TEXTS, whose loss they are of")
    named = open_subject(model, device=Machine.choose(device).device, download=download)
    subject = untrained(named) if fresh else named
    heads = _measured(subject, _lines(texts), random, gradients, seed or 0)
    table = Table(box=None, pad_edge=False)
    for column in ("head", "pattern", *heads[0].scores):
        table.add_column(column, justify="left" if column in ("head", "pattern") else "right")
    for head in heads:
        scores = (_shown(name, score) for name, score in head.scores.items())
        table.add_row(f"{head.layer}.{head.head}", head.pattern, *scores)
    Console(width=200).print(table)
    write_file(place, draw_profile(heads, place.suffix))
    found = [{"layer": h.layer, "head": h.head, "pattern": h.pattern, **h.scores} for h in heads]
    options.write_json(json_file, found)
    click.echo(f"{sinks(heads):.0%} of the heads use the first token as a sink.")
    click.echo(f"Entropy, of all heads and as a share of uniform: {mean_entropy(heads):.3f}")
    click.echo(f"Picture: {place.resolve()}")


def _measured(
    model: "Run | Subject", lines: list[str], random: int | None, gradients: bool, seed: int
) -> "list[Head]":
    """All scores of all heads: on texts, and on a random text that comes twice."""
    from regard.explorer.gradients import gradient_norms
    from regard.explorer.profile import joined, profile
    from regard.explorer.repeats import read_twice, repeat_scores
    from regard.explorer.subjects import subject_of

    subject = subject_of(model)
    maps = [subject.read(text)[0] for text in lines]
    if random or not lines:
        twice = read_twice(subject, random, seed=seed)
        heads = joined(profile(maps or [twice.map]), repeat_scores(twice))
    else:
        heads = profile(maps)
    if gradients:
        heads = joined(heads, {"gradient": gradient_norms(subject, lines, maps[0])})
    return heads


def _shown(name: str, score: float) -> str:
    return f"{score:.2g}" if name == "gradient" else f"{score:.2f}"


def _lines(texts: tuple[str, ...]) -> list[str]:
    """The texts, and of files their lines."""
    from regard.text.corpus import read_corpus

    found: list[str] = []
    for text in texts:
        is_file = len(text) < 256 and Path(text).is_file()
        found += [one.text for one in read_corpus([Path(text)])] if is_file else [text]
    return found


def _save(view: "View", out: Path | None) -> Path:
    """A page; by its ending, a picture of the first layer and head that are shown."""
    place = out or Path("look.html")
    return view.png(place) if place.suffix in (".png", ".svg") else view.save(place)


def _numbers(flag: str, text: str | None) -> list[int] | None:
    """Those that a flag chooses, from 0."""
    from regard.explorer.ranges import read_ranges

    return None if text is None else read_ranges(flag, text)


def _step(text: str, view: "View") -> tuple[int, int, int]:
    """`LAYER.HEAD` → map, layer and head, as places among those that are shown.

    Raises:
        UserError: it is none of them.
    """
    from regard.errors import UserError

    shown = {
        f"{layer.name}.{head}": (0, i, j)
        for i, layer in enumerate(view.sides[0].maps[0].layers)
        for j, head in enumerate(layer.heads)
    }
    if text not in shown:
        raise UserError(f"--steps {text}: no such head is shown; choose one such as {min(shown)}")
    return shown[text]
