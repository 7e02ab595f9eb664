"""The documentation site, built and opened as files."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

import pytest

from browser import axe, empty_tab, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
PAGES = (
    *("index.html", "docs/install.html", "docs/attention.html", "docs/gallery.html"),
    *("docs/reference/commands.html", "docs/reference/python/regard.attention.html"),
    *("docs/notebooks/attention-by-hand.html", "docs/use-the-parts.html", "search.html"),
)
"""Pages of every kind."""
NOTEBOOKS = ROOT / "docs/notebooks"
STUDIES = NOTEBOOKS / "attention-by-hand.ipynb"
GPT = NOTEBOOKS / "character-gpt.ipynb"
LIVE = "/docs/live/"
"""Pages with tests of their own, which the gallery embeds."""


@pytest.fixture(scope="module", autouse=True)
def work(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does, in a folder of work without caches.

    Of the notebooks of studies, which all call studies in the same way, it executes one.
    """
    pytest.importorskip("sphinx")
    out = tmp_path_factory.mktemp("work")
    command = [sys.executable, "docs/site/build.py", str(book), str(out), str(SITE)]
    notebooks = f"{STUDIES.stem} {GPT.stem}"
    environment = os.environ | {"PYTHONHASHSEED": "0", "EXECUTED_NOTEBOOKS": notebooks}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return out


class Anchors(HTMLParser):
    """Links and ids of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            if name == "id" and value:
                self.ids.add(value)


def test_every_link_and_anchor_resolves() -> None:
    pages = {page.resolve(): Anchors(page) for page in SITE.rglob("*.html")}
    broken = []
    for page, found in pages.items():
        if LIVE in page.as_posix():
            continue
        for link in found.links:
            parts = urlsplit(link)
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchored = pages[target].ids if target in pages and LIVE not in str(target) else None
            if parts.scheme or parts.netloc:
                continue
            if not target.exists() or (
                anchored is not None and parts.fragment not in {"", *anchored}
            ):
                broken.append(f"{page.name}: {link}")
    assert len(pages) > 40
    assert not broken


def test_every_page_of_the_docs_is_on_the_site() -> None:
    docs = ROOT / "docs"
    for page in [*docs.rglob("*.md"), *docs.rglob("*.ipynb")]:
        assert (SITE / "docs" / page.relative_to(docs).with_suffix(".html")).is_file(), page


# Notebooks, which the build has executed


def executed(notebook: Path, work: Path) -> Any:
    """The code cells of a notebook, as the build has executed it."""
    from jupyter_cache import get_cache

    cache = get_cache(work / "notebooks")
    found = cache.get_cache_bundle(cache.match_cache_file(str(notebook)).pk)
    return [cell for cell in found.nb.cells if cell.cell_type == "code"]


def test_a_notebook_shows_findings(work: Path) -> None:
    for cell in executed(STUDIES, work):
        (shown,) = cell.outputs
        assert "The claim" in shown["data"]["text/html"]


def test_a_character_gpt_learns_and_writes(work: Path) -> None:
    *_, training, samples = executed(GPT, work)
    losses = [float(loss) for loss in printed(training).splitlines()[-1].split()[1:]]
    assert losses[-1] < losses[0] - 1
    assert len(printed(samples).splitlines()) >= 3


def printed(cell: Any) -> str:
    """What a cell printed, which may come in several outputs."""
    return "".join(out.text for out in cell.outputs if out.get("name") == "stdout")


def test_the_index_for_language_models_links_to_markdown() -> None:
    text = (SITE / "llms.txt").read_text(encoding="utf-8")
    links = [
        line.partition("](")[2].partition(")")[0] for line in text.splitlines() if "](" in line
    ]
    assert len(links) > 30
    assert all((SITE / link).is_file() for link in links)


def test_the_python_pages_have_the_public_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    for package in import_module("public_api").PACKAGES:
        page = Anchors(SITE / "docs" / "reference" / "python" / f"{package}.html")
        names = import_module(package).__all__
        own = {i.removeprefix(f"{package}.") for i in page.ids if i.startswith(f"{package}.")}
        assert {name for name in own if "." not in name} == set(names), package


def test_the_python_pages_have_the_text_of_constructors() -> None:
    page = (SITE / "docs/reference/python/regard.attention.html").read_text(encoding="utf-8")
    text = " ".join(re.sub("<[^>]*>", "", page).split())
    window = import_module("regard.attention").SlidingWindow.__init__.__doc__
    assert " ".join(window.split(".")[0].replace("`", "").split()) in text


@contextmanager
def opened(
    browser: "Browser", path: str, *, width: int, scheme: Literal["light", "dark"], query: str = ""
) -> "Iterator[Page]":
    """A page of the site, which fetches nothing from the network and reports no error."""
    fetched: list[str] = []
    errors: list[str] = []
    with empty_tab(browser, width=width, scheme=scheme) as tab:
        tab.on("request", lambda request: fetched.append(request.url))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto((SITE / path).as_uri() + query)
        yield tab
    assert all(url.startswith(("file:", "data:", "blob:")) for url in fetched)
    assert not errors


# Layout depends on the width, contrast on the scheme: two pairs show both.
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1200, "light")])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_and_hinders_nobody(
    browser: "Browser", path: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    with opened(browser, path, width=width, scheme=scheme) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        tab.evaluate(axe())
        assert violations(tab) == []


def test_every_page_fits_a_phone(browser: "Browser") -> None:
    """The pages of the test above are left out."""
    pages = {page for page in SITE.rglob("*.html") if LIVE not in page.as_posix()}
    pages -= {SITE / path for path in PAGES}
    with opened(browser, "index.html", width=390, scheme="dark") as tab:
        for page in pages:
            tab.goto(page.as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") <= 390, page


def test_search_works_from_files(browser: "Browser") -> None:
    query = "?q=sliding+window"
    with opened(browser, "search.html", width=1200, scheme="light", query=query) as tab:
        tab.wait_for_selector("#search-results li a")
        found = tab.eval_on_selector_all("#search-results li a", "all => all.map(a => a.href)")
    assert any("docs/attention.html" in link for link in found)
    assert any("regard.attention.html#regard.attention.SlidingWindow" in link for link in found)


def test_the_gallery_embeds_live_pages(browser: "Browser") -> None:
    with opened(browser, "docs/gallery.html", width=390, scheme="light") as tab:
        frames = tab.query_selector_all("iframe.live")
        assert len(frames) == 2
        for frame in frames:
            frame.scroll_into_view_if_needed()
            inside: Any = frame.content_frame()
            inside.wait_for_selector("button")
            assert frame.bounding_box()["width"] <= 390  # type: ignore[index]
