"""Pages keep to the word list of docs/prose.toml."""

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
prose = import_module("prose")


def test_pages_avoid_the_words_of_the_list() -> None:
    found = [
        f"{page.name}:{line}: {word!r}; write {instead!r}"
        for page in prose.pages()
        for line, text in prose.paragraphs(page)
        for word, instead in prose.avoided(text)
    ]
    assert not found, "\n".join(found)


def test_lessons_avoid_them_too() -> None:
    text = (prose.ROOT / "src/regard/book/lessons.toml").read_text("utf-8")
    assert list(prose.avoided(text)) == []


def test_words_are_found_whole_and_in_any_case() -> None:
    assert list(prose.avoided("In order to see the greyhound")) == [("in order to", "to")]
