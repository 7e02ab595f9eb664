"""Views of attention, and their pages: self-contained, offline, and safe for any text."""

from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError, alternatives
from regard.explorer.attention_maps import (
    AttentionMap,
    Layer,
    Panel,
    PositionPicture,
    choose,
    position_pictures,
)
from regard.explorer.head_scores import blocks, most_selective
from regard.explorer.intercept import AttentionRecord, score_steps
from regard.explorer.token_comparison import compare_tokens
from regard.files import content_policy, inert, offline_page, packaged_text, write_file

HeadIndex: TypeAlias = tuple[int, int, int]
"""Indices of map, layer and head among those on the page, from 0."""
_WHOLE_PAGE = ":root { color-scheme: light dark; } body { margin: 0; min-height: 100vh; }"
"""Styles of a page that shows a view alone."""
VIEWS = ("model", "heads", "matrix", "step by step", "word", "positions")
"""Names of a page's views."""


@dataclass(frozen=True, eq=False, repr=False)
class View:
    """Attention of one or more models; displays itself in a notebook.

    >>> view: regard.View = regard.look(run, "Ada was born in Rome.")
    >>> view.opening("heads").save("view.html").name
    'view.html'
    """

    title: str
    panels: tuple[Panel, ...]
    detail: Sequence[HeadIndex] | None = None
    """Heads with exact scores: map, layer and head, from 0. Default: the head shown first."""
    word: str | None = None
    """Word to compare between panels. Default: the first that they share."""
    opens: tuple[str, HeadIndex] | None = None
    """View and head on which the page opens. Default: see `opened`."""

    @property
    def opened(self) -> tuple[str, HeadIndex]:
        """View and head on which the page opens.

        By default, the matrix of the most selective head, or all heads if there are several panels.
        """
        view = "matrix" if len(self.panels) == 1 else "model"
        return self.opens or (view, (0, *most_selective(self.panels[0].maps[0])))

    @property
    def data(self) -> dict[str, Any]:
        """Data of the page.

        Raises:
            UserError: there is too much to show, or the view that opens is empty.
        """
        view, chosen = self.opened
        detail = [chosen] if self.detail is None else self.detail
        data = serialize(self.title, self.panels, detail, self.word)
        where, layer, head = chosen
        words = [
            one for one in data["words"] if one["panels"] == [0, 1] and one["kinds"][0] == where
        ]
        shown = {"word": words, "positions": data["panels"][0]["maps"][where]["positions"]}
        if not shown.get(view, True):
            raise UserError(f"{view}: this view would be empty here; open another")
        return data | {"opens": {"view": view, "map": where, "layer": layer, "head": head}}

    def save(self, path: str | Path) -> Path:
        """Write a self-contained page."""
        write_file(Path(path), page(self.data).encode())
        return Path(path)

    def png(
        self, path: str | Path, *, layer: int = 0, head: int = 0, panel: int = 0, map: int = 0
    ) -> Path:
        """Draw one head without a browser, as SVG if the path ends in .svg, else as PNG."""
        from regard.explorer.pictures import draw_map  # imports matplotlib

        place = Path(path)
        write_file(place, draw_map(self.panels[panel].maps[map], layer, head, place.suffix))
        return place

    def beside(self, other: "View") -> "View":
        """Return a view with the panels of both."""
        title = f"{self.title} ∣ {other.title}"
        return replace(self, title=title, panels=(*self.panels, *other.panels))

    def only(
        self, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
    ) -> "View":
        """Return a view of some layers and heads, numbered from 0.

        Raises:
            UserError: there are no such layers or heads.
        """
        panels = tuple(
            replace(panel, maps=tuple(choose(one, layers, heads) for one in panel.maps))
            for panel in self.panels
        )
        return replace(self, panels=panels)

    def with_detail(self, heads: Sequence[HeadIndex]) -> "View":
        """Return a view with exact scores of other heads."""
        return replace(self, detail=tuple((int(i), int(j), int(h)) for i, j, h in heads))

    def opening(self, view: str, *, layer: int = 0, head: int = 0, map: int = 0) -> "View":
        """Return a view whose page opens on one of its views and on a head, from 0.

        `view` is model, heads, matrix, step by step, word or positions.

        Raises:
            UserError: there is no such view or head.
        """
        if view not in VIEWS:
            raise UserError(f"{view}: no such view; {alternatives(view, VIEWS)}")
        chosen = (int(map), int(layer), int(head))
        if not _has(self.panels[0], chosen):
            raise _missing(chosen)
        detail = None if view == "step by step" else self.detail
        return replace(self, opens=(view, chosen), detail=detail)

    def embed(self) -> str:
        """Return the view as a part of another page, as HTML; a page may have several.

        Its styles and those of the page are isolated. The page's Content Security Policy must
        allow inline scripts.
        """
        return (
            f'<div class="regard-view"><style>{style()}</style>'
            f'<script type="application/json">{inert(self.data)}</script></div>'
            f'<script type="module">{_script("embed.js")}</script>'
        )

    def comparing(self, word: str) -> "View":
        """Return a view that compares another word between panels."""
        return replace(self, word=word)

    def __repr__(self) -> str:
        """Return a short text, which notebooks store with the page."""
        return f"View({self.title!r})"

    def _repr_html_(self) -> str:
        return in_notebook(self.data)


def page(data: dict[str, Any]) -> str:
    """Return a self-contained page."""
    return offline_page(
        "explorer/static/page.html",
        title=data["title"],
        style=f"{_WHOLE_PAGE}\n{style()}",
        script=page_script(),
        css_class="regard-look",
        data=inert(data),
    )


def page_script() -> str:
    """Return the script of a page."""
    return _script("start.js")


def in_notebook(data: dict[str, Any], *, height: int = 640) -> str:
    """Return the page in a sandboxed frame, for notebooks.

    Its script can't access the notebook. Untrusted notebooks show the text inside instead.
    """
    document = escape(page(data), quote=True)
    return (
        f'<iframe srcdoc="{document}" title="{escape(data["title"], quote=True)}" '
        f'sandbox="allow-scripts" loading="lazy" '
        f'style="width: 100%; height: {height}px; border: 0">'
        "Interactive attention view: trust this notebook to see it.</iframe>"
    )


def embedding_policy() -> str:
    """Return the Content Security Policy of a page that embeds a view and has no other script."""
    return content_policy(_script("embed.js"))


def module() -> str:
    """Return the JavaScript module that exports render({model, el})."""
    return packaged_text("explorer/static/look.js")


def style() -> str:
    """Return the stylesheet of views."""
    return packaged_text("explorer/static/look.css")


def _script(name: str) -> str:
    """Return the module followed by a script that uses it."""
    return f"{module()}\n" + packaged_text(f"explorer/static/{name}")


LARGEST = 16_000_000
"""Largest number of bytes of weights on a page; browsers are slow beyond it."""
LARGEST_STEPS = 32_000_000
"""Largest number of bytes of exact scores, which are decoded on demand."""
DETAILED = 4
"""Largest number of heads with exact queries, keys and scores on a page."""


class TooLargeError(UserError):
    """Too much data for one page. `fact` is the message without the remedy."""

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(f"{fact}: {remedy}")
        self.fact = fact


def serialize(
    title: str,
    panels: Sequence[Panel],
    detail: Collection[HeadIndex] = (),
    word: str | None = None,
) -> dict[str, Any]:
    """Return the data of a page; `word` is compared between panels.

    Raises:
        TooLargeError: there are too many weights or exact scores.
        UserError: there are too many heads with detail, or a panel doesn't have the word.
    """
    size = sum(_bytes(one) for panel in panels for one in panel.maps)
    _require_size("weights", size, LARGEST, "choose some --layers or --heads, or a shorter text")
    if len(detail) > DETAILED:
        raise UserError(
            f"--detail of {len(detail)} heads is too much for a page; choose {DETAILED}"
        )
    for one in detail:
        if not any(_has(panel, one) for panel in panels):
            raise _missing(one)
    written = [_panel(panel, detail) for panel in panels]
    exact = sum(len(msgspec.json.encode(panel["details"])) for panel in written)
    _require_size("exact scores", exact, LARGEST_STEPS, "choose fewer --detail, or a shorter text")
    return {"title": title, "panels": written, "words": list(_words(panels, word))}


def _require_size(what: str, size: int, most: int, remedy: str) -> None:
    if size > most:
        fact = f"{what} of {size / 1e6:.0f} MB are more than a page can show smoothly"
        raise TooLargeError(f"{fact} ({most / 1e6:.0f} MB)", remedy)


def _missing(chosen: HeadIndex) -> UserError:
    return UserError(
        f"layer {chosen[1]}, head {chosen[2]} is not among the heads on the page (numbered as "
        "they are shown); choose another"
    )


def _bytes(one: AttentionMap) -> int:
    """Return the size of a map's weights and position pictures on a page, in bytes."""
    heads = sum(len(layer.heads) for layer in one.layers)
    drawn = [matrix for picture in position_pictures(one) for matrix in picture.matrices.values()]
    numbers = heads * len(one.queries) * len(one.keys) + sum(matrix.numel() for matrix in drawn)
    return numbers * 4 // 3


def _panel(panel: Panel, detail: Collection[HeadIndex]) -> dict[str, Any]:
    return {
        "name": panel.name,
        "text": panel.text,
        "prediction": panel.prediction and vars(panel.prediction),
        "maps": [_map(one) for one in panel.maps],
        "details": [_detail(panel.maps[one[0]], *one) for one in detail if _has(panel, one)],
    }


def _has(panel: Panel, chosen: HeadIndex) -> bool:
    """Return whether a panel has a head."""
    where, layer, head = chosen
    layers = panel.maps[where].layers if where in range(len(panel.maps)) else ()
    return layer in range(len(layers)) and head in range(len(layers[layer].heads))


def _map(one: AttentionMap) -> dict[str, Any]:
    return {
        "name": one.name,
        "queries": one.queries,
        "keys": one.keys,
        "second": one.second,
        "layers": [
            {"name": layer.name, "heads": _heads(layer, one.second)} for layer in one.layers
        ],
        "positions": [_picture(picture) for picture in position_pictures(one)],
    }


def _heads(layer: Layer, second: int | None) -> list[dict[str, Any]]:
    """Return the weights, ‖v_j W_O‖, and the blocks of two texts for each head."""
    weights, lengths = layer.record.weights[0], layer.value_lengths
    found: list[dict[str, Any]] = []
    for head in layer.heads:
        one: dict[str, Any] = {"name": str(head)} | pack(_array(weights[head]))
        if lengths is not None:
            one["lengths"] = pack(_array(lengths[[head]]))
        if second:
            one["blocks"] = blocks(weights[head], second).tolist()
        found.append(one)
    return found


def _picture(picture: PositionPicture) -> dict[str, Any]:
    matrices = {name: _array(matrix) for name, matrix in picture.matrices.items()}
    packed = [{"name": name} | pack(matrix) for name, matrix in matrices.items()]
    shape = [*next(iter(matrices.values())).shape]
    return vars(picture) | {"shape": shape, "matrices": packed}


def _words(panels: Sequence[Panel], word: str | None) -> Iterator[dict[str, Any]]:
    """Yield the words shared by two panels, for each pair of panels and of maps.

    Raises:
        UserError: no maps of two panels share `word`.
    """
    for first, second in combinations(range(len(panels)), 2):
        found, errors = list[dict[str, Any]](), list[UserError]()
        for (i, one), (j, other) in product(
            enumerate(panels[first].maps), enumerate(panels[second].maps)
        ):
            try:
                compared = compare_tokens(one, other, word)
            except UserError as error:  # an encoder may read a word that its decoder doesn't
                errors.append(error)
                continue
            if compared is not None:
                numbers = msgspec.to_builtins(compared, enc_hook=lambda x: _base64(_array(x)))
                found.append({"panels": [first, second], "kinds": [i, j]} | numbers)
        if errors and not found:
            raise errors[0]
        yield from found


def pack(weights: Float[np.ndarray, "queries keys"]) -> dict[str, str]:
    """Quantize a matrix to one byte per weight: 0 is min(row, 0), and 255 is the row's maximum.

    Zero, the most frequent weight, stays exact unless a row has negative weights.
    """
    low = np.minimum(weights.min(1, keepdims=True), 0)
    high = np.maximum(weights.max(1, keepdims=True), low)
    span = np.where(high > low, high - low, 1)
    values = np.rint((weights - low) / span * 255).astype(np.uint8)
    return {"scales": _base64(np.concatenate([low, high], 1)), "values": _text(values.tobytes())}


def _detail(one: AttentionMap, where: int, layer: int, head: int) -> dict[str, Any]:
    """Return the exact vectors and scores of a head."""
    record, number = one.layers[layer].record, one.layers[layer].heads[head]
    kv_head = record.kv_heads[number]
    query, key = record.head_queries[0, [number]], record.key[0, [kv_head]]
    info = one.position_info
    before = {"q": info.before_rotation(query), "k": info.before_rotation(key)}
    return {
        "map": where,
        "layer": layer,
        "head": head,
        "d": query.shape[-1],
        "q": _base64(_array(query)),
        "k": _base64(_array(key)),
        "v": _base64(_array(record.value[0, kv_head])),
        "output": _base64(_array(record.output_from(record.weights)[0, number])),
        "before": {name: _base64(_array(x)) for name, x in before.items() if x is not None},
        "implied": record.score_attention is None,
        "gates": _gates(record, number),
        "steps": _steps(score_steps(record, 0, number)),
    }


def _gates(record: AttentionRecord, head: int) -> list[dict[str, str]]:
    """Return the gates of each key, one number or one per channel; log-gates exponentiated."""
    found = []
    of_keys = [gate.name for gate in record.mechanism.gates if gate.at == "key"]
    for name in of_keys:
        gate = record.gates[name]
        states = gate[0, head * gate.shape[1] // record.weights.shape[1]]
        factor = name.removeprefix("log_")
        values = _base64(_array(states if factor == name else states.exp()))
        found.append({"name": factor, "values": values})
    return found


def _steps(found: Sequence[tuple[str, Tensor]]) -> list[dict[str, str]]:
    """Encode steps by their names, and by numbers unless these follow from earlier ones.

    The page computes q·k itself; masking is stored as bits.
    """
    written = [{"name": found[0][0]}]
    for (_, before), (name, matrix) in pairwise(found):
        hidden = matrix.isinf()
        if hidden.any() and matrix.equal(before.masked_fill(hidden, float("-inf"))):
            bits = np.packbits(hidden.cpu().numpy(), bitorder="little")
            written.append({"name": name, "hidden": _text(bits.tobytes())})
        else:
            written.append({"name": name, "values": _base64(_array(matrix))})
    return written


def _array(x: Tensor) -> Float[np.ndarray, "..."]:
    array: np.ndarray = x.detach().float().cpu().numpy()
    return array


def _base64(x: Float[np.ndarray, "..."]) -> str:
    return _text(np.ascontiguousarray(x, dtype="<f4").tobytes())


def _text(data: bytes) -> str:
    return b64encode(data).decode()
