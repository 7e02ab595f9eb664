"""Pages of attention beside bertviz: how large they are, and how soon they show something.

An encoder of BERT's size, 12 layers of 12 heads of 64, untrained but with large random weights,
reads 128 random tokens. The page of all heads is written, and bertviz's model view of the same
weights.
Of ours, headless Chromium then tells the time until something is drawn, and the time from a move
of the mouse until what it tells is drawn, over the matrix and over the words. 512 tokens are shown
for the heads of one layer. bertviz's page loads three libraries from a CDN and is blank without a
network, so of it the bytes alone are measured.

    python benchmarks/look.py [--rounds 5] [--out DIR]

Prints a table, and writes look.json into docs/figures. Playwright comes with
`pip install 'regard[bench]'`, Chromium has to be on the machine, and bertviz comes with
`pip install --no-deps bertviz`: its model view needs nothing more, and what the rest of it needs
(boto3) refuses the versions in constraints.txt.
"""

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measure
import torch
from measure import MASK
from peers import VOCABULARY

from regard.explorer.adapters import with_layer_context
from regard.explorer.attention_maps import Panel, gather_maps
from regard.explorer.intercept import capture_attention
from regard.explorer.page import View
from regard.models.config import EncoderConfig
from regard.models.transformer import Encoder

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SIZE = EncoderConfig(context_length=512, n_layers=12, n_heads=12, d_model=768, dropout=0.0)
MOVES = 30
"""Of the mouse, for each view."""
BYTES, FIRST_PAINT, HOVER = 4_000_000, 1.0, 0.05
"""What is claimed of all heads and 128 tokens: at most so much, and so many seconds."""
ALL = "Regard, 144 heads, 128 tokens"
LATENCY = """
() => {
  window.latencies = [];
  addEventListener("mousemove", (event) => requestAnimationFrame(() => setTimeout(() =>
    window.latencies.push((performance.now() - event.timeStamp) / 1000))), true);
}
"""
"""Notes for each move of the mouse when the frame after it is drawn."""
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
"""Waits until a frame is."""
FIRST_PAINT_OF = """
() => new Promise((tell) => new PerformanceObserver((paints) => {
  for (const one of paints.getEntriesByName("first-contentful-paint")) tell(one.startTime / 1000);
}).observe({ type: "paint", buffered: true }))
"""
"""Seconds until a text or a picture is drawn: https://www.w3.org/TR/paint-timing/"""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A page in the browser."""

    tokens: int
    heads: int
    bytes: int
    first_paint: list[float]
    """Seconds from opening it, a round each."""
    hover: dict[str, list[float]]
    """Seconds from a move of the mouse to the frame that answers it, by view."""


def view_of(config: EncoderConfig, tokens: int) -> View:
    """What a model does with random tokens."""
    torch.manual_seed(0)
    model = Encoder(config, VOCABULARY)
    with torch.no_grad():
        for parameter in model.parameters():  # large, for else attention is nearly uniform
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    ids = torch.randint(MASK + 1, VOCABULARY, (1, tokens))
    captured = capture_attention(model.eval(), ids)
    words = [f"word{i}" for i in ids[0].tolist()]
    maps = tuple(with_layer_context(one, model) for one in gather_maps(captured, words))
    return View("all heads", (Panel("model", maps),))


def bertviz_page(view: View) -> str:
    """Its model view of the same weights."""
    (one,) = view.panels[0].maps
    attention = [layer.record.weights for layer in one.layers]
    module = import_module("bertviz")
    html: str = module.model_view(attention, list(one.queries), html_action="return").data
    return html


# In the browser


@contextmanager
def chromium() -> "Iterator[Browser | None]":
    """Headless; None where it or Playwright is missing."""
    place = shutil.which("chromium") or shutil.which("google-chrome")
    if place is None or find_spec("playwright") is None:
        yield None
        return
    with import_module("playwright.sync_api").sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=place, args=["--no-sandbox"])
        yield browser
        browser.close()


def in_browser(browser: "Browser", view: View, page: Path, rounds: int) -> Measured:
    """A page's times."""
    (one,) = view.panels[0].maps
    return Measured(
        tokens=len(one.queries),
        heads=sum(len(layer.heads) for layer in one.layers),
        bytes=view.save(page).stat().st_size,
        first_paint=[first_paint(browser, page) for _ in range(rounds)],
        hover={
            "matrix": hover(browser, page, "Matrix", "canvas"),
            "words": hover(browser, page, "Heads", "svg"),
        },
    )


def first_paint(browser: "Browser", page: Path) -> float:
    """Seconds from opening a page until it shows something."""
    tab = browser.new_page()
    tab.goto(page.as_uri())
    found: float = tab.evaluate(FIRST_PAINT_OF)
    tab.close()
    return found


def hover(browser: "Browser", page: Path, view: str, over: str) -> list[float]:
    """Seconds that the answers to moves over a view take: down its left edge, where words stand."""
    tab = browser.new_page(viewport={"width": 1200, "height": 900})
    tab.goto(page.as_uri())
    tab.get_by_role("button", name=view, exact=True).click()
    tab.evaluate(LATENCY)
    box = tab.locator(over).first.bounding_box()
    assert box is not None
    x = box["x"] + min(160, box["width"] / 2)
    for i in range(MOVES):
        tab.mouse.move(x + i % 2, box["y"] + 12 + 20 * i)
        tab.evaluate(DRAWN)
    assert tab.get_by_role("status").inner_text(), "the moves were answered"
    found: list[float] = tab.evaluate("window.latencies")
    tab.close()
    return found


# What is told


def row(name: str, size: int, found: Measured | None) -> str:
    """Of the table, in Markdown."""
    if found is None:
        return f"| {name} | {size / 1e6:.1f} MB | – | – | – |"
    times = [found.first_paint, *found.hover.values()]
    told = [f"{1000 * statistics.median(t):.0f} ms (≤ {1000 * max(t):.0f})" for t in times]
    return f"| {name} | {size / 1e6:.1f} MB | {' | '.join(told)} |"


def claims(found: Measured) -> dict[str, bool]:
    """Whether what is claimed held."""
    return {
        "bytes": found.bytes <= BYTES,
        "first paint": statistics.median(found.first_paint) <= FIRST_PAINT,
        "hover": all(statistics.median(times) <= HOVER for times in found.hover.values()),
    }


def cases() -> dict[str, View]:
    """The pages of ours."""
    return {
        ALL: view_of(SIZE, 128),
        "Regard, 12 heads, 512 tokens": view_of(SIZE, 512).only(layers=[0]),
    }


def ours(rounds: int) -> dict[str, Measured]:
    """Each of our pages in the browser; none where there is no browser."""
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        if browser is None:
            return {}
        page = Path(folder) / "look.html"
        return {name: in_browser(browser, v, page, rounds) for name, v in cases().items()}


def main() -> None:
    """Measure, print and write."""
    given = measure.parse(measure.options(__doc__, rounds=5))
    found = ours(given.rounds)
    document: dict[str, Any] = {"machine": measure.describe(torch.device("cpu"))}
    print("| page | size | first paint | hover, matrix | hover, words |\n|---|---|---|---|---|")
    for name, one in found.items():
        print(row(name, one.bytes, one))
        document[name] = asdict(one)
    if find_spec("bertviz"):
        name = f"bertviz {version('bertviz')}, 144 heads, 128 tokens"
        size = len(bertviz_page(view_of(SIZE, 128)).encode())
        print(row(name, size, None))
        document[name] = {"bytes": size}
    if not found:
        print("Chromium or Playwright is missing: nothing of ours was measured")
        return
    document["claims"] = claims(found[ALL])
    print(document["claims"])
    measure.save(given.out, "look", document)


if __name__ == "__main__":
    main()
