"""Ctrl-C at a moment that suits: between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interrupt:
    """Whether the user asked to stop."""

    wanted: bool = False


@contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Note the first Ctrl-C instead of raising it; a second one raises at once."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def note(_signal: int, _frame: FrameType | None) -> None:
        if interrupt.wanted:
            raise KeyboardInterrupt
        interrupt.wanted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
