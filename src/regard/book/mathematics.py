"""TeX as MathML, in the subset that browsers draw (MathML Core)."""

import re
from functools import cache
from html import escape
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markupsafe import Markup

_ARG = re.compile(r"\\arg\s*\\(max|min)(?![a-zA-Z])")
_LIMITS = {"argmax": "arg\u2009max", "argmin": "arg\u2009min", "max": "max", "min": "min"}
"""Operators with the subscript below them in displayed formulas."""
_SUBSCRIPT = re.compile(r"((?<![A-Za-z0-9_])[A-Za-zŷ]|[α-ωΑ-Ω])_([A-Za-z0-9]+|\([^()]*\)|&lt;\w)")
_SUPERSCRIPT = re.compile(r"(?<=[\w)ᵀ>])\^(\([^()]*(?:\([^()]*\)[^()]*)*\)|[−-]?(?:√?\w+|∞))")
_END = re.compile(r"[.,;:!?)’”]+")
_CLOSING = (")", "]", "}", "|", "\u2016", "\u232a", "!")
_OFFSETS = {
    "bold": (0x1D400, 0x1D41A, 0x1D7CE),
    "double-struck": (0x1D538, 0x1D552, 0x1D7D8),
    "script": (0x1D49C, 0x1D4B6, None),
}
"""First uppercase letter, lowercase letter and digit of Unicode's mathematical alphabets."""
_ELSEWHERE = {
    0x1D49D: 0x212C, 0x1D4A0: 0x2130, 0x1D4A1: 0x2131, 0x1D4A3: 0x210B, 0x1D4A4: 0x2110,
    0x1D4A7: 0x2112, 0x1D4A8: 0x2133, 0x1D4AD: 0x211B, 0x1D53A: 0x2102, 0x1D53F: 0x210D,
    0x1D545: 0x2115, 0x1D547: 0x2119, 0x1D548: 0x211A, 0x1D549: 0x211D, 0x1D551: 0x2124,
}  # fmt: skip
"""Letters that are outside these alphabets, because Unicode had them before."""


@cache
def to_mathml(tex: str, *, display: bool = True) -> Markup:
    """Return a formula as an HTML element.

    Raises:
        ValueError: the formula has a command that is not known.
    """
    source = _ARG.sub(r"\\operatorname{arg\1}", tex)
    written = convert(source, xmlns="", display="block" if display else "inline")
    try:
        root = ElementTree.fromstring(written.replace(' xmlns=""', ""))
    except ElementTree.ParseError as error:
        raise ValueError(f"{tex}: not a formula: {error}") from None
    for element in list(root.iter()):
        _mend(element, display=display)
        _space(element)
    html = ElementTree.tostring(root, encoding="unicode")
    if "\\" in html:
        raise ValueError(f"{tex}: {html[html.index(chr(92)) :][:20]}: unknown command")
    return Markup(html)


def with_math(text: str) -> Markup:
    """Return plain text as HTML, with the TeX between dollar signs as formulas.

    Raises:
        ValueError: a formula has a command that is not known, or no end.
    """
    pieces = text.split("$")
    if len(pieces) % 2 == 0:
        raise ValueError(f"{text}: an odd number of dollar signs")
    html = with_scripts(pieces[0])
    for tex, after in zip(pieces[1::2], pieces[2::2], strict=True):
        formula, end = to_mathml(tex, display=False), _END.match(after)
        if end:  # keeps a full stop on the formula's line
            after = after[end.end() :]
            formula = Markup('<span class="formula-end">{}{}</span>').format(formula, end[0])
        html += formula + with_scripts(after)
    return html


def with_scripts(text: str) -> Markup:
    """Return plain text as HTML, with v_a and e^t as subscript and superscript."""
    html = _SUBSCRIPT.sub(lambda it: f"{it[1]}<sub>{_bare(it[2])}</sub>", escape(text, quote=False))
    return Markup(_SUPERSCRIPT.sub(lambda it: f"<sup>{_bare(it[1])}</sup>", html))


def _bare(script: str) -> str:
    """Return a script without the parentheses around it."""
    return script[1:-1] if script.startswith("(") else script


def _mend(element: Element, *, display: bool) -> None:
    """Convert one element to the subset."""
    _join_letters(element)
    text = element.text or ""
    if element.tag == "mo" and len(text) > 1 and text.isalpha():
        element.tag, element.text = "mi", _LIMITS.get(text, text)
    elif text == "~" and element.tag == "mi":  # \sim
        element.tag, element.text = "mo", "\u223c"
    elif text == "\u2202":  # a partial derivative isn't a binary operator
        element.tag = "mi"
    elif text in ("\u2016", "/") and element.tag == "mo":  # as TeX sets them
        element.attrib |= {
            "stretchy": element.get("stretchy", "false"),
            "lspace": "0",
            "rspace": "0",
        }
    elif text == "\u22a4":  # x^\top is a superscript, not a relation
        element.tag = "mi"
        element.set("mathvariant", "normal")
    variant = element.get("mathvariant", "")
    if variant in _OFFSETS and len(text) == 1:
        element.text = _styled(text, variant)
        element.attrib.pop("mathvariant")
    if display and element.tag == "msub" and element[0].text in _LIMITS:
        element.tag = "munder"


def _space(row: Element) -> None:
    """Space signs and function names as TeX does."""
    if row.tag not in ("mrow", "math", "mtd"):
        return
    children = list(row)
    for before, child in zip([None, *children], children, strict=False):
        after_operator = before is None or (before.tag == "mo" and before.text not in _CLOSING)
        if child.tag == "mo" and child.text in ("\u2212", "-", "<", ">") and after_operator:
            child.attrib |= {"form": "prefix", "lspace": "0", "rspace": "0"}
        named = (_is_function(child) and not after_operator) or (
            before is not None and _is_function(before) and child.tag != "mo"
        )
        if named:
            row.insert(list(row).index(child), Element("mspace", width="0.167em"))


def _is_function(element: Element) -> bool:
    """Return whether an element is the name of a function, perhaps with a script."""
    name = element[0] if element.tag in ("msub", "munder", "msup") else element
    return name.tag == "mi" and len(name.text or "") > 1


def _join_letters(row: Element) -> None:
    """Make one identifier of upright letters, as in softmax."""
    upright = [child.tag == "mi" and child.get("mathvariant") == "normal" for child in row]
    if len(row) > 1 and all(upright):
        word = "".join(child.text or "" for child in row)
        row.clear()
        row.tag, row.text = "mi", word


def _styled(letter: str, variant: str) -> str:
    """Return a letter of a mathematical alphabet, or the letter if it has none."""
    for first, start in zip("Aa0", _OFFSETS[variant], strict=True):
        place = ord(letter) - ord(first)
        if start is not None and 0 <= place < (10 if first == "0" else 26):
            return chr(_ELSEWHERE.get(start + place, start + place))
    return letter
