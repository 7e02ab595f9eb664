"""Sections of the documentation as HTML, without links and external resources."""

import json
import mimetypes
import posixpath
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

LARGEST_PICTURE = 100_000
"""Largest picture to embed, in bytes; a larger one is replaced by its alternative text."""
_HEADING = re.compile(r"(?m)^#+ (.+)$")
_SOURCES = Path(__file__).parents[3]
"""The repository, the source for an editable installation."""


@cache
def section_html(address: str) -> Markup:
    """Return a section, `docs/….md#anchor`, up to the next heading, or a notebook.

    Raises:
        FileNotFoundError: the installation lacks the page.
        KeyError: the page has no such section.
    """
    tokens = _markdown().parse(_section(address)[1])
    offline = _offline(tokens, address.partition("#")[0])
    return Markup(_markdown().renderer.render(offline, _markdown().options, {}))


def section_title(address: str) -> str:
    """Return the heading of a section."""
    return _section(address)[0].replace("`", "")


def section_id(address: str) -> str:
    """Return the id of a section's element."""
    return "page-" + re.sub(r"[^a-z0-9]+", "-", address.lower())


def pictures(address: str) -> list[str]:
    """Return the paths of the pictures of a section to embed."""
    path, text = address.partition("#")[0], _section(address)[1]
    names = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    return [at for name in names if _is_shown(at := _beside(path, name))]


def _is_shown(picture: str) -> bool:
    """Return whether a picture is installed and small enough."""
    file = _file(picture)
    return file.is_file() and len(file.read_bytes()) <= LARGEST_PICTURE


def _file(path: str) -> Traversable:
    """Return a file of the documentation; a wheel has them in this package."""
    held = files("regard.book") / path
    return held if held.is_file() else _SOURCES / path


@cache
def _section(address: str) -> tuple[str, str]:
    """Return the heading of a section and the text below it, or those of a whole notebook."""
    path, _, anchor = address.partition("#")
    text = _file(path).read_text(encoding="utf-8")
    if path.endswith(".ipynb"):
        title, _, cells = _notebook(text).removeprefix("# ").partition("\n")
        return title, cells
    for heading in _HEADING.finditer(text):
        if re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-") == anchor:
            rest = text[heading.end() :]
            end = _HEADING.search(rest)
            return heading[1], rest[: end.start()] if end else rest
    raise KeyError(address)


def _notebook(text: str) -> str:
    """Return the cells of a notebook as Markdown."""
    cells = json.loads(text)["cells"]
    return "\n\n".join(
        f"```\n{source}\n```" if cell["cell_type"] == "code" else source
        for cell in cells
        for source in ["".join(cell["source"])]
    )


def _offline(tokens: Sequence[Token], path: str) -> list[Token]:
    """Embed pictures, and replace links and large pictures by plain text."""
    kept = []
    for place, token in enumerate(tokens):
        if token.type == "th_open" and not tokens[place + 1].content:
            token.tag = tokens[place + 2].tag = "td"  # the empty corner of a table isn't a heading
        if token.type == "image":
            picture = _beside(path, str(token.attrs["src"]))
            if _is_shown(picture):
                token.attrSet("src", _picture(picture))
            else:
                token = Token("text", "", 0, content=f"[Picture: {token.content}]")
        if token.children:
            token.children = _offline(token.children, path)
        if token.type not in ("link_open", "link_close"):
            kept.append(token)
    return kept


def _beside(path: str, name: str) -> str:
    """Return the path of a file that a page names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name))


def _picture(path: str) -> str:
    data = b64encode(_file(path).read_bytes()).decode()
    return f"data:{mimetypes.guess_type(path)[0]};base64,{data}"


@cache
def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    for rule, html in {
        "table_open": '<div class="scroll" role="group" aria-label="table"><table>',
        "table_close": "</table></div>",
    }.items():
        markdown.add_render_rule(rule, lambda *_, html=html: html)
    return markdown
