"""The prose of pages, without code and formulas: a word list, and proselint.

    python docs/prose.py

prints what proselint finds (`make prose` installs it); a test compares pages with the word list.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
WORDS: dict[str, str] = tomllib.loads((ROOT / "docs/prose.toml").read_text("utf-8"))["words"]
"""Words to avoid, and what to write instead."""
LEFT_OUT = ("typography", "weasel_words", "uncomparables", "dates_times", "lexical_illusions")
"""Checks of proselint that take tables, formulas and names of options for prose."""


def pages() -> list[Path]:
    """Return all pages that people write; those of the reference are generated."""
    written = {*(ROOT / "docs").rglob("*.md")} - {*(ROOT / "docs/reference").iterdir()}
    return [*sorted(ROOT.glob("*.md")), *sorted(written)]


def paragraphs(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the text of each paragraph, heading and cell, with the line on which it begins."""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8")):
        if token.type == "inline":
            parts = (part.content if part.type == "text" else " " for part in token.children or ())
            yield (token.map or [0])[0] + 1, "".join(parts)


def avoided(text: str) -> Iterator[tuple[str, str]]:
    """Yield words of the list that occur in a text, with what to write instead."""
    for word, instead in WORDS.items():
        if re.search(rf"\b{word}(?:d|s)?\b", text, re.IGNORECASE):
            yield word, instead


def main() -> None:
    """Print what proselint finds, and exit with 1 if that is anything."""
    from proselint.checks import __register__
    from proselint.config import DEFAULT
    from proselint.registry import CheckRegistry
    from proselint.tools import LintFile

    CheckRegistry().register_many(__register__)
    checks = {name: on and name not in LEFT_OUT for name, on in DEFAULT["checks"].items()}
    config = {"max_errors": 1000, "checks": checks}
    found = [
        f"{page.relative_to(ROOT)}:{line}: {result.check_result.message}"
        for page in pages()
        for line, text in paragraphs(page)
        if text.strip()
        for result in LintFile(page.name, text).lint(config)
    ]
    print(*found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
