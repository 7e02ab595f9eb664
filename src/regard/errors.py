"""Errors of Regard. The command line prints one line and exits with `exit_code`."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches


class RegardError(Exception):
    """An error that one line explains."""

    exit_code = 1


class UserError(RegardError):
    """Invalid input: the message says what is wrong, where, and how to fix it."""

    exit_code = 2


class UnsupportedError(UserError):
    """A mechanism doesn't support an option."""


class NonFiniteError(RegardError):
    """A loss or gradient became NaN or infinite; the weights are unchanged."""


class NormalizerError(NonFiniteError):
    """The weights of a query add up to zero or less, so they can't be normalized."""


def require_list(texts: Iterable[object], name: str) -> None:
    """Raise for a single text, each letter of which would count as one.

    Raises:
        UserError: it is a single text.
    """
    if isinstance(texts, str):
        raise UserError(f"{name}: expected a list of texts, not a single one; write [text]")


def alternatives(name: str, known: Iterable[str]) -> str:
    """Return the known names for an error message, and the nearest to an unknown name."""
    names = list(known)
    return f"there are: {', '.join(names)}{suggestion(name, names)}"


def suggestion(name: str, known: Collection[str]) -> str:
    """Return the end of an error message: the nearest known name, or nothing."""
    nearest = get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""
