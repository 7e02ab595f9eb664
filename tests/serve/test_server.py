"""The server itself, on a port of this machine."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
import uvicorn

from regard.serve.server import ADDRESS, _Server, listen
from regard.serve.worker import QUEUE_SIZE, Worker
from tiny_served import request_body, save_run, served

SIDE_BY_SIDE = 100


def test_a_hundred_requests_side_by_side_are_all_answered(tmp_path: Path) -> None:
    assert SIDE_BY_SIDE <= QUEUE_SIZE
    start = threading.Barrier(SIDE_BY_SIDE)
    body = json.dumps(request_body()).encode()

    def ask(_: int) -> tuple[int, bytes]:
        with closing(HTTPConnection(ADDRESS, port, timeout=60)) as connection:
            connection.connect()
            start.wait(60)
            connection.request("POST", "/look", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    with served(save_run(tmp_path / "run")) as port, ThreadPoolExecutor(SIDE_BY_SIDE) as crowd:
        answers = list(crowd.map(ask, range(SIDE_BY_SIDE)))
    assert {status for status, _ in answers} == {200}
    assert len({text for _, text in answers}) == 1


def test_only_this_machine_is_heard() -> None:
    with listen(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        assert listening.family == socket.AF_INET


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C in another way")
def test_requests_dropped_by_ctrl_c_are_no_errors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("uvicorn.error")
    monkeypatch.setattr(log, "disabled", False)
    _Server(uvicorn.Config("app", log_config=None), Worker()).handle_exit(signal.SIGINT, None)
    log.error("Cancel 1 running task(s), timeout graceful shutdown exceeded")
    assert not caplog.records


def test_ctrl_c_ends_the_server_while_it_writes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regard", "serve", str(save_run(tmp_path / "run", "long"))]
    with (
        subprocess.Popen(
            [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
        ExitStack() as at_the_end,
    ):
        at_the_end.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == "Models: run\n"
        url = process.stdout.readline().split()[1]
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.status == 200
        asked = urllib.request.Request(
            f"{url}generate",
            data=json.dumps(request_body(max_new_tokens=1024)).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=60) as writing:
            assert b"token" in writing.readline()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "Stopped.\n", "")
