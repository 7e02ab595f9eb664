"""Italic letters of formulas, as characters of Unicode's mathematical alphabet."""

import re

FORMULA_FONT = "STIX Two Math"
"""Font of formulas in pages."""
_FIRST = {"A": 0x1D434, "a": 0x1D44E, "Α": 0x1D6E2, "α": 0x1D6FC}
"""Italic forms of the first letters of the Latin and Greek alphabets."""
_ITALICS = {
    chr(ord(first) + i): chr(italic + i)
    for first, italic in _FIRST.items()
    for i in range(26 if first in "Aa" else 25)
} | {"h": "ℎ"}  # which Unicode had before these alphabets
_PLAIN = str.maketrans({italic: letter for letter, italic in _ITALICS.items()})
_LETTER = f"[{''.join(_ITALICS.values())}]"
_RUN = re.compile(f"({_LETTER}+)(?:_((?:{_LETTER}|[0-9])+))?")


def italic(letter: str) -> str:
    """Return the italic form of a Latin or Greek letter; other texts as they are."""
    return _ITALICS.get(letter, letter)


def plain(text: str) -> str:
    """Return a text with plain instead of italic letters, as for a screen reader."""
    return text.translate(_PLAIN)


def in_formula_font(svg: str) -> str:
    """Return an SVG whose italic letters are in the font of formulas; its attributes have none.

    Italic letters and digits after _ are a subscript.
    """
    return _RUN.sub(lambda run: _spans(*run.groups()), svg)


def _spans(letters: str, subscript: str | None) -> str:
    font = f'font-family="{FORMULA_FONT}"'
    spans = f"<tspan {font}>{letters}</tspan>"
    if subscript:
        # As large as the letter: on a phone, a smaller one could not be read.
        spans += f'<tspan {font} dy=".3em">{subscript}</tspan>'
        spans += '<tspan dy="-.3em">\u200b</tspan>'  # back to the line, without width
    return spans
