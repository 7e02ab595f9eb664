"""Errors of Regard. The command line prints one line and exits with `exit_code`."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from importlib import import_module


class RegardError(Exception):
    """An error that one line explains."""

    exit_code = 1


class UserError(RegardError):
    """Invalid input: the message says what is wrong, where, and how to fix it.

    >>> regard.load("nowhere")
    Traceback (most recent call last):
        ...
    regard.errors.UserError: nowhere: ...
    """

    exit_code = 2


class UnsupportedError(UserError):
    """A mechanism doesn't support an option."""


class NonFiniteError(RegardError):
    """A loss or gradient became NaN or infinite; the weights are unchanged."""


class NormalizerError(NonFiniteError):
    """The weights of a query add up to zero or less, so they can't be normalized."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def typed_message(error: BaseException) -> str:
    """Return the message of an error, after its type unless it is a TypeError or ValueError."""
    usual = isinstance(error, TypeError | ValueError)
    return str(error) if usual else f"{type(error).__name__}: {first_line(error)}"


def require_list(texts: Iterable[object], name: str) -> None:
    """Raise for a single text, each letter of which would count as a text.

    Raises:
        UserError: it is a single text.
    """
    if isinstance(texts, str):
        raise UserError(f"{name}: expected a list of texts, not a single one; write [text]")


def require_packages(needed_by: str, extra: str, *modules: str) -> None:
    """Import modules of the packages of an extra.

    Raises:
        UserError: one can't be imported; the message begins with `needed_by` ("ROUGE needs").
    """
    for module in modules:
        package = module.partition(".")[0]
        try:
            import_module(module)
        except ImportError as error:
            reason = f"can't be imported: {first_line(error)}"
            if isinstance(error, ModuleNotFoundError) and error.name in (package, module):
                reason = f"isn't installed: pip install 'regard[{extra}]'"
            name = package.replace("_", "-")
            raise UserError(f"{needed_by} {name}, which {reason}") from None


MOST = 32
"""Names that an error message lists in full."""
SHOWN = 8
"""Names that it shows of a longer list."""


def alternatives(name: str, known: Iterable[str]) -> str:
    """Return the known names for an error message, and the nearest to an unknown name.

    Of a long list only some are shown, the nearest first.
    """
    names = list(known)
    if len(names) <= MOST:
        return f"there are: {', '.join(names)}{suggestion(name, names)}"
    near = get_close_matches(name.lower(), names, n=SHOWN)
    return f"there are: {some(dict.fromkeys([*near, *names]))}{suggestion(name, names)}"


def some(names: Collection[str], most: int = SHOWN) -> str:
    """Return names for an error message: the first, and the number of the others."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(list(names)[:most]) + more


def suggestion(name: str, known: Collection[str]) -> str:
    """Return the end of an error message: the nearest known name, or nothing."""
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else ""


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that is nearest to another, if one is near."""
    return next(iter(get_close_matches(name.lower(), list(known), n=1)), None)
