"""Run a student's code on the inputs of one exercise; results are returned as JSON."""

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
"""Largest number of kept characters of a student's output."""
RETURNED = 4_000_000
"""Largest number of JSON characters of a student's results."""


LARGEST = RETURNED // 2
"""Largest number of entries of a result, which take about as many characters."""
TOO_LARGE = "returns more than can be graded"
"""Message for larger results."""
NOT_WRITTEN = "not written yet"
"""Message for a blank."""
READY = b"ready"
"""Report of a process before it runs a student's code."""
ANSWERS = "answers.json"
"""The file of a job's answers."""
UNREADABLE = "sends results that can't be read"
"""Reason for discarding results if the code has tampered with them."""


class Job(msgspec.Struct, frozen=True):
    """A job: source cells by label, and the inputs of a function that they define."""

    cells: list[tuple[str, str]]
    function: str
    inputs: list[dict[str, Any]]
    """Inputs as JSON values, see `values.encode`."""
    restrictions: Restrictions = Restrictions()


class Answers(msgspec.Struct, frozen=True):
    """Results of a program for each of the inputs, until it failed."""

    returned: list[Any] = []
    """Results as JSON values."""
    entries: list[int] = []
    """Number of entries of the largest tensor for each input; 0 if not counted."""
    reason: str = ""
    """Reason why some inputs have no result."""
    output: str = ""
    """Beginning of the printed output."""


class _BoundedText(io.TextIOBase):
    """A text stream that keeps the beginning of its output."""

    def __init__(self) -> None:
        self.kept = ""

    def write(self, text: str) -> int:
        self.kept += text[: OUTPUT - len(self.kept)]
        return len(text)


def run_job(job: Job) -> Answers:
    """Run a job and return the results; an exception becomes the reason."""
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
    """Return whether an exception comes from a function that is still blank."""
    return isinstance(error, NotImplementedError) and not error.args


def _reason(error: BaseException, labels: list[str]) -> str:
    try:
        return _explained(error, labels)
    except BaseException:  # the message of a student's exception may raise anything
        return f"{type(error).__name__}, which has no message that can be read"


def _explained(error: BaseException, labels: list[str]) -> str:
    """Return one line with the exception, and its line and cell."""
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
    return f"{type(error).__name__}{': ' * bool(message)}{message[:300]}{where}"


def serve_job(connection: Any, job: bytes, folder: str, seconds: int, memory: int) -> None:
    """Run a job in this process, started for it, and write its answers into a folder.

    The process reports that it begins, and closes the connection when it ends.
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

    Has no effect on Windows; memory is limited only on Linux.
    """
    if sys.platform == "win32":
        return
    import resource

    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    seconds += round(time.process_time())  # includes the import of torch, if not forked
    # The soft limit of time sends a signal; the hard one would kill without a reason.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    limits = {resource.RLIMIT_FSIZE: 64 * 2**20, resource.RLIMIT_CORE: 0}
    if sys.platform == "linux":
        limits[resource.RLIMIT_DATA] = memory
    for limit, most in limits.items():
        _, hard = resource.getrlimit(limit)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most))
