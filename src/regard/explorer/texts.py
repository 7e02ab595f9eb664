"""Texts that a model can't read, and how much one writes by itself."""

from collections.abc import Sequence

from regard.errors import UserError

WRITTEN = 24
"""Tokens that an encoder–decoder writes where no target is given."""


def require_text(*texts: str | None) -> None:
    """Refuse texts that hold nothing.

    Raises:
        UserError: a text is empty.
    """
    if "" in texts:
        raise UserError("a text is empty; a model needs something to look at")


def require_room(ids: Sequence[int], block: int, what: str) -> None:
    """Refuse a text that the model can't read.

    Raises:
        UserError: it is too long.
    """
    if len(ids) > block:
        raise UserError(
            f"{what} takes {len(ids)} tokens, which is more than the model's block of {block}; "
            "shorten it"
        )
