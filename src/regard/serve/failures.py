"""What went wrong, as a page may show it: one line, without a path of this machine."""

import re

from regard.errors import RegardError
from regard.serve.offers import Offer

_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\":;,()]+[/\\])+([^\s/\\'\":;,()]*)")
"""An absolute path; its last part may stay."""


class FailedError(RegardError):
    """A model couldn't do its work."""


class BusyError(RegardError):
    """There is more to do than anyone would wait for."""


class StoppedError(RegardError):
    """The server goes away."""


def reason(error: Exception, one: Offer) -> str:
    """Why work on a model failed, with the model's name in the place of its path."""
    text = str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
    named = text.replace(str(one.path), one.name)
    return " ".join(_PATH.sub(r"\1", named).split())
