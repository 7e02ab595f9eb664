"""The server: a socket on the loopback address, stopped by Ctrl-C."""

import logging
import socket
from collections.abc import Callable, Sequence
from types import FrameType

import torch
import uvicorn

from regard.errors import UserError
from regard.serve.app import make_app
from regard.serve.available_models import AvailableModel
from regard.serve.worker import Worker

ADDRESS = "127.0.0.1"
SHUTDOWN_SECONDS = 3
"""Seconds for running requests to finish when the server stops."""


def serve(
    models: Sequence[AvailableModel],
    *,
    port: int,
    device: torch.device,
    ready: Callable[[str], None],
    edit: str = "",
) -> None:
    """Serve until Ctrl-C; `ready` is called with the URL. Port 0 stands for any free port.

    `edit` is the page's initial text of edits.

    Raises:
        UserError: the port is taken.
    """
    with listen(port) as listening:
        chosen = listening.getsockname()[1]
        worker = Worker()
        config = uvicorn.Config(
            make_app(models, worker, device, chosen, edit),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        ready(f"http://{ADDRESS}:{chosen}/")
        _Server(config, worker).run([listening])


def listen(port: int) -> socket.socket:
    """Open a socket that only this machine can reach.

    Raises:
        UserError: the port is taken or not permitted.
    """
    try:
        return socket.create_server((ADDRESS, port))
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"--port {port}: can't be used ({reason}); choose another, or 0 for any free port"
        ) from None


class _Server(uvicorn.Server):
    """Drops waiting requests on exit instead of finishing them."""

    def __init__(self, config: uvicorn.Config, worker: Worker) -> None:
        super().__init__(config)
        self._worker = worker

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._worker.stop()
        logging.getLogger("uvicorn.error").disabled = True  # dropped requests aren't errors
        super().handle_exit(sig, frame)
