"""Write the sources of the documentation site, and build it. `make docs`.

The pages are the Markdown files of the repository, as they are. What only a site has is added: a
front page, the contents, the Python API from the code, live views, and llms.txt.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import isclass, isroutine
from pathlib import Path
from typing import NamedTuple, get_origin

from sphinx.cmd.build import build_main

from regard.explorer.page import page
from regard.studies.registry import find_study

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROJECT = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md",
    "SECURITY.md",
    "LICENSE",
    "CITATION.cff",
)
"""Files beside README.md that pages link to."""
LIVE = {
    "figures/answer.svg": "live/recalled.html",
    "figures/study-book.png": "live/book/index.html",
}
"""Pictures of the gallery, and the page that takes the place of each on the site."""
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)\)")
PICTURE = re.compile(r"!\[([^\]]+)\]\(([^)]+)\)")
API = "docs/reference/python"


class Entry(NamedTuple):
    """A line of the documentation index."""

    title: str
    path: str
    note: str


def main(book: Path, work: Path, site: Path) -> None:
    """Build the site in a folder, with a book that `regard book --slides` wrote."""
    sys.path.insert(0, str(DOCS))
    from public_api import PACKAGES

    source = work / "source"
    sections = contents((DOCS / "README.md").read_text(encoding="utf-8"))
    stage(source)
    write(source / "index.md", front_page(sections))
    write(source / "docs/gallery.md", live(source / "docs/gallery.md"))
    listed = source / f"{API}.md"
    pages = toctree("", [f"python/{package}" for package in PACKAGES])
    write(listed, listed.read_text(encoding="utf-8") + pages)
    for package in PACKAGES:
        write(source / API / f"{package}.rst", api_page(package))
    options = ["--fail-on-warning", "--keep-going", "--nitpicky", "--fresh-env", "--quiet"]
    cache = f"--define=nb_execution_cache_path={work / 'notebooks'}"
    folders = [f"--conf-dir={Path(__file__).parent}", f"--doctree-dir={work / 'doctrees'}"]
    if build_main([*options, cache, *folders, str(source), str(site)]):
        sys.exit(1)  # Sphinx has printed the errors
    write_live(site / "docs/live", book)
    write(site / "llms.txt", llms(sections))


def write(path: Path, text: str) -> None:
    """Write a file and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def stage(source: Path) -> None:
    """Copy the pages and what they link to."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(DOCS, source / "docs", ignore=shutil.ignore_patterns("site", "__pycache__"))
    for name in PROJECT:
        shutil.copy2(ROOT / name, source)


# Contents


def contents(index: str) -> dict[str, list[Entry]]:
    """Return the pages that the index links to, by section, each once."""
    sections: dict[str, list[Entry]] = {}
    known: set[str] = set()
    for part in index.split("\n## ")[1:]:
        name, _, text = part.partition("\n")
        sections[name] = [entry for entry in entries(text) if entry.path not in known]
        known |= {entry.path for entry in sections[name]}
    return sections


def entries(text: str) -> Iterator[Entry]:
    """Yield the linked pages of a list; the first of an item has the item's note."""
    for item in text.split("\n- "):
        note = " ".join(LINK.sub(r"\1", item).partition(": ")[2].split())
        for title, path in LINK.findall(item):
            if "://" not in path:
                yield Entry(title, path, note)
                note = ""


def toctree(caption: str, paths: list[str]) -> str:
    """Return a hidden list of pages, which makes the navigation."""
    title = [f":caption: {caption}"] if caption else []
    return "\n".join(["", "```{toctree}", ":hidden:", *title, *paths, "```", ""])


def front_page(sections: dict[str, list[Entry]]) -> str:
    """Return README.md, followed by the contents."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    trees = [
        toctree(name, [f"docs/{Path(entry.path).with_suffix('')}" for entry in pages])
        for name, pages in sections.items()
    ]
    project = ["docs/README", *(Path(name).stem for name in PROJECT if name.endswith(".md"))]
    return "".join([text, *trees, toctree("Project", project)])


def llms(sections: dict[str, list[Entry]]) -> str:
    """Return the index for language models, whose links lead to the pages' Markdown.

    https://llmstxt.org
    """
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    summary = re.findall(r"\*\*(.+?)\*\*", readme)[0]
    lines = ["# Regard", "", f"> {summary}"]
    for name, pages in sections.items():
        links = (f"- [{e.title}](_sources/docs/{e.path}.txt): {e.note}" for e in pages)
        lines += ["", f"## {name}", "", *(link.rstrip(": ") for link in links)]
    return "\n".join(lines) + "\n"


# Python API


def api_page(package: str) -> str:
    """Return a page of a package's public names, made from signatures and docstrings."""
    module = import_module(package)
    plain = {
        name: value
        for name in module.__all__
        if not (isclass(value := getattr(module, name)) or isroutine(value))
    }
    lines = [package, "=" * len(package), "", f".. automodule:: {package}", "   :members:"]
    lines += [f"   :exclude-members: {', '.join(plain)}"] if plain else []
    for name, value in plain.items():  # which have no docstring at run time
        text = f"The type ``{value}``." if get_origin(value) else f"A ``{type(value).__name__}``."
        lines += ["", f".. py:data:: {name}", "", f"   {text}"]
    return "\n".join(lines) + "\n"


# Live pages


def live(gallery: Path) -> str:
    """Return the gallery with live pages in place of their pictures."""

    def shown(found: re.Match[str]) -> str:
        title, picture = found[1], found[2]
        if picture not in LIVE:
            return found[0]
        page = LIVE[picture]
        return (
            f'<iframe src="{page}" title="{title}" loading="lazy" class="live"></iframe>\n'
            f'<a href="{page}">Open this page alone</a>'
        )

    return PICTURE.sub(shown, gallery.read_text(encoding="utf-8"))


def write_live(folder: Path, book: Path) -> None:
    """Write the pages that the gallery embeds."""
    shutil.copytree(book, folder / "book", dirs_exist_ok=True)
    view = find_study("recalled").stored_result().explorer_view
    assert view is not None, "the study has an attention view"
    write(folder / "recalled.html", page(view))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
