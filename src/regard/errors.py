"""Errors of Regard. The command line prints them in one line and exits with `exit_code`."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches


class RegardError(Exception):
    """Anything that stops the work and that one line can explain."""

    exit_code = 1


class UserError(RegardError):
    """A mistake in what the user gave: says what is wrong, where, and how to mend it."""

    exit_code = 2


class UnsupportedError(UserError):
    """A mechanism was asked for something that it can't do."""


class NonFiniteError(RegardError):
    """A loss or gradient became NaN or infinite; nothing was changed by it."""


class NormalizerError(NonFiniteError):
    """The weights of a query add up to zero or less, and can't be divided by their sum."""


def alternatives(name: str, known: Iterable[str]) -> str:
    """Return the known names for an error message, and the nearest to an unknown name."""
    names = list(known)
    return f"there are: {', '.join(names)}{suggestion(name, names)}"


def suggestion(name: str, known: Collection[str]) -> str:
    """Return the end of an error message: the nearest known name, or nothing."""
    nearest = get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""
