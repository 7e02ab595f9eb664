"""A student's code, run on the inputs of one exercise; what it does comes back as JSON."""

import io
import json
import os
import sys
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

import jaxtyping  # noqa: F401  (imported by the notebooks; here before processes are forked)
import msgspec
import torch

from regard.exercises.restrictions import ExcludedError, Restrictions, call_restricted
from regard.exercises.values import decode, encode

OUTPUT = 2000
"""Characters of a student's output that are kept."""
RETURNED = 4_000_000
"""Characters of JSON that a student's results may take."""


LARGEST = RETURNED // 2
"""Entries of a result that take as many characters."""
TOO_LARGE = "returns more than can be graded"
"""Message for larger results."""
NOT_WRITTEN = "not written yet"
"""Message for a blank."""
READY = b"ready"
"""Message of a process before it runs a student's code."""
ANSWERS = "answers.json"
"""The file of a job's answers."""
UNREADABLE = "sends results that can't be read"
"""Why results are worth nothing that the code has tampered with."""


class Job(msgspec.Struct, frozen=True):
    """A job: source cells by label, and the inputs of a function that they define."""

    cells: list[tuple[str, str]]
    function: str
    inputs: list[dict[str, Any]]
    """As JSON values, see `values.encode`."""
    restrictions: Restrictions = Restrictions()


class Answers(msgspec.Struct, frozen=True):
    """Results of a program for each of the inputs, until it failed."""

    returned: list[Any] = []
    """As JSON values."""
    entries: list[int] = []
    """Of the largest tensor that was made for each input; 0 if they aren't counted."""
    reason: str = ""
    """Reason why some inputs have no result."""
    output: str = ""
    """The beginning of what was printed."""


class _BoundedText(io.TextIOBase):
    """Keeps the beginning of what is written."""

    def __init__(self) -> None:
        self.kept = ""

    def write(self, text: str) -> int:
        self.kept += text[: OUTPUT - len(self.kept)]
        return len(text)


def run_job(job: Job) -> Answers:
    """Return what the student's function returns; an exception becomes the reason."""
    printed, returned, entries = _BoundedText(), list[Any](), list[int]()
    reason = ""
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            function = _define(job)
            for inputs in job.inputs:
                call = partial(function, **{name: decode(x) for name, x in inputs.items()})
                value, most = call_restricted(call, job.restrictions)
                if _size(value) > LARGEST:
                    reason = TOO_LARGE
                    break
                returned.append(encode(value))
                entries.append(most)
        except BaseException as error:  # SystemExit and KeyboardInterrupt too
            reason = _reason(error, [label for label, _ in job.cells])
    return Answers(returned, entries, reason, printed.kept)


def _size(value: Any) -> int:
    """Return the number of entries of a result."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    return len(value) if isinstance(value, list | tuple | dict | set | str | bytes) else 1


def _define(job: Job) -> Any:
    """Run the cells and return the function."""
    names: dict[str, Any] = {"__name__": "exercise"}
    for label, source in job.cells:
        exec(compile(source, label, "exec"), names)
    return names[job.function]


def is_blank(error: BaseException) -> bool:
    """Return whether an exception is that of a function that is still to be written."""
    return isinstance(error, NotImplementedError) and not error.args


def _reason(error: BaseException, labels: list[str]) -> str:
    try:
        return _explained(error, labels)
    except BaseException:  # the message of a student's exception may raise anything
        return f"{type(error).__name__}, which has no message that can be read"


def _explained(error: BaseException, labels: list[str]) -> str:
    """Return one line: what was raised, and in which line of which cell."""
    if is_blank(error):
        return NOT_WRITTEN
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "needs more memory than is allowed"
    if isinstance(error, SystemExit):
        return "calls sys.exit"
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame.lineno, frame.filename) for frame in frames if frame.filename in labels]
    if isinstance(error, SyntaxError) and error.filename in labels:
        places = [(error.lineno, error.filename)]
    if isinstance(error, NameError) and not isinstance(error, UnboundLocalError):
        error.args = (f"{error}; helpers belong above the first exercise",)
    where = f" (line {places[-1][0]} of {places[-1][1]})" if places else ""
    if isinstance(error, ExcludedError):
        return f"{error}{where}"
    message = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    return f"{type(error).__name__}: {message[:300]}{where}"


def serve_job(connection: Any, job: bytes, folder: str, seconds: int, memory: int) -> None:
    """Run a job in this process, which is made for it; its answers are written into a folder.

    The process says that it begins, and closes the connection when it ends.
    """
    work, written = Path(folder) / "work", Path(folder) / ANSWERS
    work.mkdir()
    os.chdir(work)
    torch.set_num_threads(1)
    _restrict(seconds, memory)
    connection.send_bytes(READY)
    part = written.with_suffix(".part")
    part.write_text(_to_json(run_job(msgspec.json.decode(job, type=Job))), "utf-8")
    part.replace(written)
    connection.close()


def _to_json(answers: Answers) -> str:
    with suppress(MemoryError):
        # msgspec can't write NaN and infinity as JSON.
        text = json.dumps(msgspec.to_builtins(answers))
        if len(text) <= RETURNED:
            return text
    return json.dumps({"reason": TOO_LARGE})


def _restrict(seconds: int, memory: int) -> None:
    """Leave the caller's terminal and session; limit time, memory, files and core dumps.

    Not on Windows; memory on Linux only.
    """
    if sys.platform == "win32":
        return
    import resource

    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    seconds += round(time.process_time())  # where this process has imported torch itself
    # The soft limit of time sends a signal; the hard one would kill without a reason.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    limits = {resource.RLIMIT_FSIZE: 64 * 2**20, resource.RLIMIT_CORE: 0}
    if sys.platform == "linux":
        limits[resource.RLIMIT_DATA] = memory
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))
