"""regard look, regard head-scores"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options
from regard.errors import UserError

if TYPE_CHECKING:
    import torch

    from regard.edits.edit import Edits
    from regard.explorer.adapters import Adapter
    from regard.explorer.attention_maps import AttentionMap
    from regard.explorer.head_scores import Head
    from regard.explorer.page import View
    from regard.runs.run import Run

MODEL = options.together(
    options.TRUST_CODE, click.argument("model", type=options.FILLED, metavar="RUN|hf:MODEL")
)
LOADING = options.together(
    click.option("--device", help="Device: auto, cpu, cuda, … [cpu]."),
    click.option(
        "--download", is_flag=True, help="Download an hf: model that isn't in the local cache."
    ),
)


@click.command()
@MODEL
@click.argument("text")
@click.argument("second", required=False)
@click.option(
    "--out",
    type=options.OutputFile(".html", ".png", ".svg"),
    default=Path("look.html"),
    help="Page to write, .html, or picture, .png or .svg.",
)
@click.option("--layers", metavar="0,2-3", help="Layers to show, from 0.")
@click.option("--heads", metavar="0,2-3", help="Heads to show, from 0.")
@click.option(
    "--detail",
    metavar="LAYER.HEAD",
    multiple=True,
    help="Head with exact scores [the one that opens].",
)
@click.option("--compare", type=options.FILLED, help="Another RUN or hf:MODEL side by side.")
@click.option("--compare-untrained", is_flag=True, help="The untrained model side by side.")
@click.option("--compare-text", type=options.FILLED, help="Another text side by side.")
@options.EDIT
@click.option("--compare-edit", is_flag=True, help="Also show the model without the edit.")
@click.option(
    "--word", type=options.FILLED, help="Word to compare between panels [first shared word]."
)
@LOADING
def look(
    model: str,
    text: str,
    second: str | None,
    out: Path,
    layers: str | None,
    heads: str | None,
    detail: tuple[str, ...],
    compare: str | None,
    compare_untrained: bool,
    compare_text: str | None,
    edit: Path | None,
    compare_edit: bool,
    word: str | None,
    **loading: Any,
) -> None:
    """Write a page with the attention of a model to TEXT.

    The model is a RUN, or hf: with a folder or a name in the local Hugging Face cache. SECOND is
    the target of an encoder–decoder, or the second sentence of a pair. A run that was trained on
    questions reads a TEXT that ends with ? as a question, up to its answer. With --edit, a Hugging
    Face model is imported as by regard import-hf.
    """
    from regard.explorer.attention_maps import ANSWER
    from regard.explorer.look import look as look_at
    from regard.explorer.look import untrained

    of_pages = {
        "--detail": detail,
        "--compare": compare,
        "--compare-untrained": compare_untrained,
        "--compare-text": compare_text,
        "--compare-edit": compare_edit,
        "--word": word,
    }
    is_picture = out.suffix in (".png", ".svg")
    for option in (name for name, value in of_pages.items() if value and is_picture):
        raise UserError(f"{option}: a picture shows one head of one panel; name a page as --out")
    edits = _edits(edit, compare_edit)
    this = (_open if edits is None else open_run)(model, **loading)
    view = look_at(this, text, second, edit=edits)
    others: list[tuple[Run | Adapter, str]] = [(this, text)] if compare_edit else []
    others += [(this, compare_text)] if compare_text else []
    others += [(_open(compare, **loading), text)] if compare else []
    others += [(untrained(this), text)] if compare_untrained else []
    for other, its_text in others:
        view = view.beside(look_at(other, its_text, second))
    view = view.only(_numbers("--layers", layers), _numbers("--heads", heads))
    if word is not None:
        view = _comparing(view, word)
    view = view.with_detail([_step(head, view) for head in detail]) if detail else view
    if is_picture:
        _, (place, layer, head) = view.opened
        view.png(out, layer=layer, head=head, map=place)
    else:
        view.save(out)
    for panel in view.panels:
        if panel.prediction and panel.prediction.kind == ANSWER:
            click.echo(f"{panel.name}: the text is read as a question, as by regard ask")
    click.echo(f"Look: {out}")


@click.command()
@MODEL
@click.argument("texts", nargs=-1)
@click.option(
    "--random",
    metavar="N",
    type=options.COUNT,
    help="Also score a sequence of N random tokens, repeated once. Default without TEXTS: 50.",
)
@click.option("--gradients", is_flag=True, help="Also report ‖∂L/∂A‖ per head.")
@click.option(
    "--out",
    type=options.OutputFile(".png", ".svg"),
    default=Path("head-scores.png"),
    help="Figure to write, .png or .svg.",
)
@options.JSON
@click.option("--untrained", "fresh", is_flag=True, help="Score the untrained model.")
@options.SEED
@LOADING
def head_scores(
    model: str,
    texts: tuple[str, ...],
    random: int | None,
    gradients: bool,
    out: Path,
    json_file: Path | None,
    fresh: bool,
    seed: int | None,
    **loading: Any,
) -> None:
    """Score each attention head on TEXTS, as a table and a picture.

    The model is a RUN, or hf: with a folder or a name in the local Hugging Face cache. If TEXT is a
    file, each of its lines is a text.
    """
    from rich.console import Console
    from rich.table import Column, Table

    from regard.explorer.head_scores import SINK_TOKENS, draw_head_scores, mean_entropy, sink_share
    from regard.explorer.look import untrained
    from regard.files import write_file

    if gradients and not texts:
        raise UserError("--gradients: needs TEXTS for the loss")
    named = _open(model, **loading)
    adapter = untrained(named) if fresh else named
    heads, maps = _measured(adapter, _lines(texts), random, gradients, seed or 0)
    kind, shortest = maps[0].name, min(len(one.keys) for one in maps)
    names = dict.fromkeys(name for head in heads for name in head.scores)  # of all kinds of layers
    scores = (Column(name, justify="right") for name in names)
    table = Table("head", "pattern", *scores, box=None, pad_edge=False)
    for head in heads:
        shown = (_shown(name, head.scores.get(name)) for name in names)
        table.add_row(f"{head.layer}.{head.head}", head.pattern, *shown)
    Console(width=200).print(table)
    write_file(out, draw_head_scores(heads, out.suffix))
    found = [{"layer": h.layer, "head": h.head, "pattern": h.pattern, **h.scores} for h in heads]
    options.write_json(json_file, found)
    if kind != "self-attention":
        click.echo(f"Scored: {kind}; heads of other kinds of attention are left out.")
    if shortest < SINK_TOKENS:
        click.echo(f"{shortest} tokens are too few to tell a sink from uniform attention.")
    else:
        click.echo(f"{sink_share(heads):.0%} of the heads use the first token as a sink.")
    click.echo(f"Mean entropy of the heads, as a share of uniform: {mean_entropy(heads):.3f}")
    click.echo(f"Picture: {out}")


def _edits(file: Path | None, compare: bool) -> "Edits | None":
    """Return the edits of a file, which --compare-edit needs."""
    from regard.edits.edit import load_edit

    if file is None and compare:
        raise UserError("--compare-edit: needs an edit; add --edit FILE")
    return None if file is None else load_edit(file)


def _open(name: str, *, device: str | None, **loading: Any) -> "Run | Adapter":
    """Load a model to a device, by default to the CPU."""
    from regard.explorer.look import open_model

    return open_model(name, device=_device(device), **loading)


def open_run(name: str, *, device: str | None, **loading: Any) -> "Run":
    """Load a model like `_open`, as a run that can be edited."""
    from regard.explorer import look

    return look.open_run(name, device=_device(device), **loading)


def _device(name: str | None) -> "torch.device | None":
    from regard.environment import ExecutionEnvironment

    return ExecutionEnvironment.choose(name).device if name else None


def _measured(
    model: "Run | Adapter", lines: list[str], random: int | None, gradients: bool, seed: int
) -> "tuple[list[Head], list[AttentionMap]]":
    """Return all scores of all heads, on texts and on a repeated random sequence.

    The second value is the attention to each text, or else to the sequence.
    """
    from regard.explorer.gradients import gradient_norms
    from regard.explorer.head_scores import head_scores, with_scores
    from regard.explorer.induction import attend_repeated_sequence, induction_scores
    from regard.explorer.look import adapter_of

    adapter = adapter_of(model)
    maps = [adapter.attention_maps(text)[0] for text in lines]
    if random or not lines:
        twice = attend_repeated_sequence(adapter, random, seed=seed)
        maps = maps or [twice.map]
        heads = with_scores(head_scores(maps), induction_scores(twice))
    else:
        heads = head_scores(maps)
    if gradients:
        norms = gradient_norms([adapter.gradients(line) for line in lines], maps[0])
        heads = with_scores(heads, {"gradient": norms})
    return heads, maps


def _shown(name: str, score: float | None) -> str:
    if score is None:
        return "–"
    return f"{score:.2g}" if name == "gradient" else f"{score:.2f}"


def _lines(texts: tuple[str, ...]) -> list[str]:
    """Return the texts, and the lines of files."""
    from regard.files import exists
    from regard.text.corpus import read_corpus

    found: list[str] = []
    for text in texts:
        is_file = exists(text) and Path(text).is_file()
        found += [one.text for one in read_corpus([Path(text)])] if is_file else [text]
    return found


def _numbers(flag: str, text: str | None) -> list[int] | None:
    """Return the indices of an option, from 0."""
    from regard.explorer.attention_maps import parse_index_ranges

    return None if text is None else parse_index_ranges(flag, text)


def _comparing(view: "View", word: str) -> "View":
    """Return the page with the cells of a word in two panels."""
    if len(view.panels) == 1:
        raise UserError(
            f"--word {word}: needs two panels; add --compare-text, --compare, --compare-untrained "
            "or --compare-edit"
        )
    return view.comparing(word)


def _step(text: str, view: "View") -> tuple[int, int, int]:
    """Parse LAYER.HEAD into indices of map, layer and head among those shown.

    Raises:
        UserError: there is no such head on the page.
    """
    shown = {
        f"{layer.name}.{head}": (0, i, j)
        for i, layer in enumerate(view.panels[0].maps[0].layers)
        for j, head in enumerate(layer.heads)
    }
    if text not in shown:
        raise UserError(
            f"--detail {text}: no such head on the page; choose one such as {min(shown)}"
        )
    return shown[text]
