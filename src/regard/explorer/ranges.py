"""Layers and heads as people name them: a list of numbers and ranges, from 0."""

import re

from regard.errors import UserError

_LIST = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", re.ASCII)


def read_ranges(asked_by: str, text: str) -> list[int]:
    """`0,2-3` → [0, 2, 3]; `asked_by` is the flag or field in which it stands.

    Raises:
        UserError: it isn't such a list.
    """
    plain = "".join(text.split())
    found: list[int] = []
    if _LIST.fullmatch(plain):
        for part in plain.split(","):
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    if not found:
        raise UserError(f"{asked_by} {text}: is no list of numbers such as 0,2-3")
    return found
