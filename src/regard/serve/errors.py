"""Error messages for the page: one line, without paths of this machine."""

import re
from typing import TYPE_CHECKING

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.serve.available_models import AvailableModel

_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\":;,()]+[/\\])+([^\s/\\'\":;,()]*)")
"""An absolute path; its last part may stay."""


class ModelFailedError(RegardError):
    """A model raised an unexpected error."""


class BusyError(RegardError):
    """The queue of requests is full."""


class ShutdownError(RegardError):
    """The server is shutting down."""


def public_message(error: Exception, model: "AvailableModel") -> str:
    """Return an error's message, with the model's name in place of its path."""
    text = str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
    named = text.replace(str(model.path), model.name)
    return " ".join(_PATH.sub(r"\1", named).split())
