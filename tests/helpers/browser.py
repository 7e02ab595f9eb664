"""Pages in a headless Chromium."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

PATIENCE = 180_000
"""Milliseconds that a page may take on a busy machine."""


def chromium() -> str:
    """Prefer the headless shell, which takes half the time of the whole browser."""
    for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return name
    pytest.skip("no Chromium on this machine")


@contextmanager
def driven() -> "Iterator[Browser]":
    """Chromium, driven by Playwright; the test skips where one of them is missing."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which(chromium()),
            args=["--no-sandbox", "--disable-gpu", "--disable-quic", "--renderer-process-limit=1"],
        )
        browser.new_context()  # of the tabs; another one would take half a second
        yield browser
        browser.close()


@contextmanager
def empty_tab(
    browser: "Browser", *, width: int, height: int = 900, scheme: Literal["light", "dark"]
) -> "Iterator[Page]":
    """A tab of the browser's first context. Pages store nothing that another one reads."""
    tab = browser.contexts[0].new_page()
    tab.set_viewport_size({"width": width, "height": height})
    tab.emulate_media(color_scheme=scheme)
    tab.set_default_timeout(PATIENCE)
    try:
        yield tab
    finally:
        tab.close()


@contextmanager
def watched(
    browser: "Browser", page: Path, *, width: int = 1200, scheme: Literal["light", "dark"] = "light"
) -> "Iterator[Page]":
    """A page of a file, which fetches nothing else, and of which the console tells nothing."""
    asked: list[str] = []
    told: list[str] = []

    def answer(dialog: "Dialog") -> None:
        told.append(dialog.message)
        dialog.dismiss()  # until then, the page stands still, and all that asks it

    with empty_tab(browser, width=width, scheme=scheme) as tab:
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: told.append(message.text))
        tab.on("pageerror", lambda error: told.append(str(error)))
        tab.on("dialog", answer)
        tab.goto(page.as_uri())
        yield tab
    assert asked == [page.as_uri()]
    assert told == []


def axe() -> str:
    """The script that looks for what hinders people; it comes in a package.

    https://github.com/dequelabs/axe-core
    """
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe-playwright-python isn't installed")
    script = (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")
    script = f"((WeakMap, WeakSet) => {{{script}\n}})({FIELDS}, {FIELDS});"
    # Results without the HTML of each element: `FOUND` adds that of the few that it returns.
    return f"{script}\n{PARSED_ONCE}\naxe.configure({{ noHtml: true }});"


FIELDS = """class {
  #field = Symbol();
  has(owner) { return Object.hasOwn(owner, this.#field); }
  get(owner) { return owner[this.#field]; }
  set(owner, value) { owner[this.#field] = value; return this; }
  add(owner) { return this.set(owner, true); }
  delete(owner) { return delete owner[this.#field]; }
}"""
"""Class that stores axe's private fields in their object, in place of a WeakMap or WeakSet each.

These would take most of the garbage collector's time, with some eight entries per color.
"""
PARSED_ONCE = """{
  const { Color } = axe.commons.color;
  const { parseString } = Color.prototype;
  const parsed = new Map();
  Color.prototype.parseString = function (text) {
    if (!parsed.has(text)) parsed.set(text, parseString.call(new Color(), text));
    const { r, g, b, alpha } = parsed.get(text);
    return Object.assign(this, { r, g, b, alpha });
  };
}"""
"""A script that lets axe parse each color once, not for each element."""


COLOR_RULES = ("color-contrast", "link-in-text-block")
"""What axe checks by default of colors, for which it looks at the place of each element."""
FORMULAS_AS_TEXT = """() => {
  for (const math of document.querySelectorAll("math")) {
    const { color } = getComputedStyle(math.parentElement);
    const plain = [math, ...math.querySelectorAll("*")].map((one) => getComputedStyle(one)).every(
      (one) => one.color === color && one.backgroundColor === "rgba(0, 0, 0, 0)");
    if (plain) math.replaceWith(math.textContent);
  }
}"""
"""A script that writes formulas in the color of the text around them as a part of this text.

What axe finds of colors is the same; it takes seconds for the elements of a derivation.
"""


PAGES_APART = """() => {
  window.places = new Map();
  for (const page of document.querySelectorAll(".page")) {
    places.set(page.id, [page, new Comment()]);
    page.replaceWith(places.get(page.id)[1]);
  }
  return [...places.keys()];
}"""
"""A script that takes the pages out of a book, and returns their ids.

axe reads all of a document each time, also what is hidden.
"""
PUT_BACK = "(id) => places.get(id)[1].replaceWith(places.get(id)[0])"
TAKE_OUT = "(id) => places.get(id)[0].replaceWith(places.get(id)[1])"
"""Scripts that put one of these pages back, or take it out."""


FOUND = """async (options) => {
  const { passes, violations } = await axe.run(options);
  const html = ({ target }) => document.querySelector(target).outerHTML.slice(0, 200);
  return [passes.length, violations.map(({ id, nodes }) => `${id}: ${html(nodes[0])}`)];
}"""
"""A script that returns the number of rules that hold, and the others with their first elements."""


def violations(tab: "Page", rules: Sequence[str] = (), *, without: Sequence[str] = ()) -> list[str]:
    """What axe finds in a page that has its script, by these rules or all that it runs by default.

    Frames have tests of their own. Of what passes, axe lists one element per rule.
    """
    disabled = {rule: {"enabled": False} for rule in without}
    options: dict[str, Any] = {
        "iframes": False,
        "resultTypes": ["violations"],
        "rules": disabled,
    }
    if rules:
        options["runOnly"] = list(rules)
    passed, found = tab.evaluate(FOUND, options)
    assert passed, "it looked"
    return list(found)


SMALL_TEXT = """() => [...document.querySelectorAll("figure svg")].flatMap((svg) => {
  if (!svg.checkVisibility()) return [];
  const again = svg.querySelector(":scope > use")?.getAttribute("href");
  const drawn = again ? document.querySelector(again) : svg;
  const scale = svg.getScreenCTM().a;
  const sizes = [...drawn.querySelectorAll("text, tspan")].map(
    (text) => scale * parseFloat(getComputedStyle(text).fontSize));
  const least = Math.min(...sizes);
  return least < 9 ? [`${drawn.id || svg.ariaLabel}: ${least.toFixed(1)}`] : [];
})"""
"""A script that returns the figures of the page shown with text below 9 pixels, and its size."""
