"""Code that loops, crashes, exits or takes too much memory is stopped; the reason is printed."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from platforms import imitate
from regard.exercises import sandbox
from regard.exercises.sandbox import Sandbox
from regard.exercises.worker import OUTPUT, Answers, Job
from regard.operating_system import is_running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are those of Linux")


def run(body: str, **limits: int) -> Answers:
    """Run the body of a function of x, which is 1."""
    source = "def f(x):\n" + "\n".join(f"    {line}" for line in body.splitlines())
    return Sandbox(**limits).run(Job([("its cell", source)], "f", [{"x": 1}]))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("while True: pass", "s longer than "),
        ("import time; time.sleep(600)", "takes longer than 4 s"),
        ("import torch; torch.zeros(2**29)", "needs more memory than is allowed"),
        ("return bytearray(3 * 2**30)", "needs more memory than is allowed"),
        ("import os; os.abort()", "crashes with SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "crashes with SIGSEGV"),
        ("import sys; sys.exit(0)", "calls sys.exit"),
        ("import os; os._exit(3)", "exits with code 3 before it returns"),
        ("import os; os.kill(os.getpid(), 40)", "crashes with signal 40"),
        ("raise ValueError('[bad]\\nvalue')", "ValueError: [bad] value (line 2 of its cell)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt (line 2 of its cell)"),
        ("return y", "helpers belong above the first exercise (line 2 of its cell)"),
        ("return (", "SyntaxError: '(' was never closed (line 2 of its cell)"),
        ("return input()", "EOFError: EOF when reading a line (line 2 of its cell)"),
        ("f(x)", "RecursionError: maximum recursion depth exceeded (line 2 of its cell)"),
        ("return 'x' * 10**7", "returns more than can be graded"),
        ("return [0.1] * 10**7", "returns more than can be graded"),
        ("open('file', 'w').write('x' * 10**8)", "File too large"),
        (
            "class Bad(Exception):\n    def __str__(self): raise self\nraise Bad",
            "Bad, which has no message that can be read",
        ),
    ],
)
def test_a_failure_has_a_reason_of_one_line(body: str, reason: str) -> None:
    limits = {"seconds": 1} if "longer than" in reason else {}
    answers = run(body, **limits)
    assert reason in answers.reason
    assert "\n" not in answers.reason
    assert answers.returned == []


def test_the_default_limit_of_memory_is_2_gib() -> None:
    allocate = "import torch\nreturn len(torch.empty({}, dtype=torch.int8))"
    assert run(allocate.format("3 * 2**29")).returned == [3 * 2**29]
    assert run(allocate.format("2**31")).reason == "needs more memory than is allowed"


def test_what_is_printed_is_kept_up_to_a_bound() -> None:
    answers = run("import sys\nprint('x' * 10**6)\nprint('y', file=sys.stderr)\nreturn x")
    assert answers.returned == [1]
    assert answers.output == "x" * OUTPUT


def test_results_before_a_failure_are_kept() -> None:
    source = "def f(x):\n    return 1 / x"
    job = Job([("its cell", source)], "f", [{"x": 2}, {"x": 0}, {"x": 4}])
    answers = Sandbox().run(job)
    assert answers.returned == [0.5]
    assert "ZeroDivisionError" in answers.reason


def test_files_are_written_elsewhere_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answers = run("import os\nopen('file', 'w').write('x')\nreturn os.path.abspath('file')")
    (written,) = answers.returned
    assert not Path(written).exists()
    assert list(tmp_path.iterdir()) == []


def test_processes_that_the_code_starts_end_with_it() -> None:
    answers = run("import os, time\nif child := os.fork(): return child\ntime.sleep(600)")
    (child,) = answers.returned
    deadline = time.monotonic() + 60
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


def test_what_a_process_sends_is_never_unpickled(tmp_path: Path) -> None:
    """A result that would write a file when it is unpickled."""
    mark = tmp_path / "mark"
    body = (
        "import os\n"
        "class Bad:\n"
        f"    def __reduce__(self): return (open, ({str(mark)!r}, 'w'))\n"
        "return Bad()"
    )
    assert run(body).returned == [{"other": "Bad"}]
    assert not mark.exists()


def test_a_part_of_a_message_holds_up_nothing() -> None:
    """The rest was waited for without end."""
    body = (
        "import gc, os, time\n"
        "from multiprocessing.connection import Connection\n"
        "for one in gc.get_objects():\n"
        "    if isinstance(one, Connection) and one.writable:\n"
        "        os.write(one.fileno(), b'\\0\\0\\1\\0part')\n"
        "time.sleep(600)"
    )
    answers = run(body, seconds=1)
    assert answers.reason
    assert answers.returned == []


@pytest.mark.slow
def test_code_that_kills_its_parent_spoils_no_other_exercise() -> None:
    assert run("import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(60)").reason
    assert run("return x").returned == [1]


def test_garbage_instead_of_results_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda _: {"returned": 3})
    assert run("return x").reason == "sends results that can't be read"


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_elsewhere_than_on_linux_processes_are_not_forked(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(platform, sandbox, monkeypatch)
    assert run("return x").returned == [1]
    assert Sandbox()._context.get_start_method() == "spawn"


@pytest.mark.slow
def test_windows_ends_a_process_without_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    imitate("win32", sandbox, monkeypatch)
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("Windows has no groups"))
    answers = run("import time; time.sleep(600)", seconds=1)
    assert answers.reason == "takes longer than 4 s"
