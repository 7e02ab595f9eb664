"""The server: this machine's own address, a port, and an end by Ctrl-C."""

import socket
from collections.abc import Callable, Sequence
from types import FrameType

import torch
import uvicorn

from regard.errors import UserError
from regard.serve.app import make_app
from regard.serve.offers import Offer
from regard.serve.worker import Worker

ADDRESS = "127.0.0.1"
PATIENCE = 3
"""Seconds that answers under way have when the server ends."""


def serve(
    offers: Sequence[Offer], *, port: int, device: torch.device, ready: Callable[[str], None]
) -> None:
    """Serve until Ctrl-C; `ready` is told the address. Port 0 stands for any that is free.

    Raises:
        UserError: the port is taken.
    """
    with listen(port) as listening:
        chosen = listening.getsockname()[1]
        worker = Worker()
        config = uvicorn.Config(
            make_app(offers, worker, device, chosen),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=PATIENCE,
        )
        ready(f"http://{ADDRESS}:{chosen}/")
        _Server(config, worker).run([listening])


def listen(port: int) -> socket.socket:
    """A socket that hears this machine alone.

    Raises:
        UserError: the port is taken, or not to be had.
    """
    try:
        return socket.create_server((ADDRESS, port))
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"--port {port}: can't be used ({reason}); choose another, or 0 for any that is free"
        ) from None


class _Server(uvicorn.Server):
    """Drops what waits as soon as it is told to end, rather than working it off."""

    def __init__(self, config: uvicorn.Config, worker: Worker) -> None:
        super().__init__(config)
        self._worker = worker

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._worker.stop()
        super().handle_exit(sig, frame)
