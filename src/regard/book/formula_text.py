"""TeX as a line of text for terminals and figures, such as ∂L/∂α_i = 2σ²/√d."""

import re
from collections.abc import Mapping
from functools import cache
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from regard.book.mathematics import to_mathml
from regard.italics import italic

_SUBSCRIPTS = str.maketrans("0123456789+−", "₀₁₂₃₄₅₆₇₈₉₊₋")
_SUPERSCRIPTS = str.maketrans("0123456789+−⊤′*", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ′*")
_FORMULA = re.compile(r"\$(?=\S)([^$]+)(?<=\S)\$(?!\d)")
_ACCENTS = {"^": "\u0302", "~": "\u0303"}
_SPACED = frozenset("=≠≈∼<>≤≥≪∈∝→⇒↦∣+−·×∪,…")
"""Operators with a space on both sides; the space before a comma is removed later."""
_SUMS = frozenset("∑∏⋃")
_SCRIPTS = frozenset({"msub", "msup", "msubsup", "munder", "mover", "munderover"})
_WIDE, _APART = "\u2003", "\u200b"
"""Marks between formulas, and between parts that need a space before a letter."""
_SINGLE = frozenset("₀₁₂₃₄₅₆₇₈₉₊₋⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ′*")
"""Scripts after which a letter is unambiguous."""


def formula_text(tex: str) -> str:
    """Return a formula as a line of text.

    Raises:
        ValueError: the formula has a command that is not known.
    """
    return _line(ElementTree.fromstring(to_mathml(tex, display=False)))


def _line(formula: Element) -> str:
    text = _text(formula)
    text = re.sub(f"{_APART}(?=[\\w√])", " ", text).replace(_APART, "").replace(":", ": ")
    text = re.sub(f" *{_WIDE} *", _WIDE, re.sub(" +", " ", text))
    return re.sub(r"(?<=[(\[{]) | (?=[)\]},])", "", text).replace(_WIDE, "  ").strip()


def with_formulas(text: str) -> str:
    """Return plain text with the TeX between dollar signs as text."""
    return re.sub(r"\$([^$]+)\$", lambda found: formula_text(found[1]), text)


def label_text(label: str) -> str:
    """Return a label of a figure, with the TeX between dollar signs as text in italic letters.

    Other dollar signs stay.
    """
    return _FORMULA.sub(lambda found: _italic_text(found[1]), label)


@cache
def _italic_text(tex: str) -> str:
    formula = ElementTree.fromstring(to_mathml(tex, display=False))
    for letter in formula.iter("mi"):
        if letter.get("mathvariant") != "normal":
            letter.text = italic(letter.text or "")
    return _line(formula)


def _text(element: Element) -> str:
    if not len(element):
        return _leaf(element)
    parts = [_text(child) for child in element]
    match element.tag:
        case "mfrac" if element.get("linethickness") == "0":
            return " choose ".join(parts)
        case "mfrac":
            over, under = parts
            below = _grouped(under, len(_factors(element[1])) > 1 and not under.startswith("∂"))
            return f" {_grouped(over, _is_sum(over))}/{below} "
        case "msqrt":
            inner = "".join(parts)
            return "√" + _grouped(inner, not inner.isalnum())
        case "mtable":
            return "; ".join(parts)
        case "mtr":
            return ", ".join(parts)
        case tag if tag in _SCRIPTS:
            return _with_scripts(tag, *parts)
    return "".join(_apart(child, part) for child, part in zip(element, parts, strict=True))


def _leaf(element: Element) -> str:
    text = (element.text or "").replace("\xa0", " ")
    if element.tag == "mspace":
        return _WIDE if element.get("width") == "1em" else " "
    spaced = element.tag == "mo" and text in _SPACED and element.get("form") != "prefix"
    return f" {text} " if spaced else text


def _apart(element: Element, text: str) -> str:
    """Return a part of a row, followed by a mark if a letter needs a space before it."""
    ends_in_letters = element.tag in _SCRIPTS or (element.tag == "mi" and len(text) > 1)
    return f"{text}{_APART}" if ends_in_letters and text[-1:] not in _SINGLE else text


def _with_scripts(tag: str, base: str, first: str, second: str = "") -> str:
    if tag == "mover" and first in _ACCENTS:
        return base + _ACCENTS[first]
    if tag in ("msup", "mover"):
        return base + _script("^", first, _SUPERSCRIPTS)
    text = base + _script("_", first, _SUBSCRIPTS)
    if second:
        text += _script("^", second, _SUPERSCRIPTS)
    return f" {text} " if base in _SUMS else text


def _script(sign: str, text: str, letters: Mapping[int, int]) -> str:
    """Return digits and ⊤ as Unicode scripts, others after ^ or _."""
    text = text.replace(" ", "").replace(_APART, "")
    if all(ord(letter) in letters for letter in text):
        return text.translate(letters)
    return sign + _grouped(text, not text.isalnum())


def _grouped(text: str, needed: bool) -> str:
    """Return a text, in parentheses where they are needed."""
    return f"({text.strip()})" if needed else text.strip()


def _factors(element: Element) -> list[Element]:
    """Return the parts of a row, within rows of a single part."""
    parts = [part for part in element if part.tag != "mspace"]
    return _factors(parts[0]) if len(parts) == 1 and parts[0].tag in ("mrow", "mstyle") else parts


def _is_sum(text: str) -> bool:
    """Return whether there is a sum or difference outside of parentheses."""
    outside, n = re.subn(r"\([^()]*\)", "", text)
    return _is_sum(outside) if n else " + " in text or " − " in text
