"""Tiny untrained runs, in memory and on disk, and the page that serves them, without a network."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.testclient import TestClient

from regard.config import override
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.serve.app import make_app
from regard.serve.available_models import AvailableModel, find_models
from regard.serve.server import listen
from regard.serve.worker import Worker
from regard.text.config import CharactersConfig
from regard.text.tokenizer import train_tokenizer

TEXT = "the dog ran"
HOSTILE = "</script><img src=x onerror=alert(1)>"
PORT = 8765
BLOCK = 32
SIZES = (f"context_length={BLOCK}", "d_model=16", "n_layers=2", "n_heads=2")
TINY = [f"model.{size}" for size in SIZES]
BOTH = [f"model.{side}.{size}" for side in ("encoder", "decoder") for size in SIZES]
FAMILIES: dict[str, list[str]] = {
    "decoder": ["text", *TINY],
    "favor": ["text", *TINY, "model.attention.kind=favor-positive"],
    "long": ["text", *TINY, "model.context_length=1024"],
    "perceiver": ["course", *TINY, "model.kind=perceiver", "model.n_layers=3", "model.n_latents=8"],
    "encoder": ["masked", *TINY, "model.n_token_types=2"],
    "classifier": [
        *("classification", *TINY, "head.kind=classification", 'head.labels=["good", "bad"]'),
    ],
    "encoder-decoder": ["translation", *BOTH],
    "rnn": ["text", "model.kind=rnn", *TINY[:2]],
    "recurrent": [
        *("translation", "model.kind=rnn-encoder-decoder", *TINY[:2], "model.n_layers=1"),
        "model.attention.kind=softmax",
    ],
}


def new_run(family: str, path: Path = Path("tiny")) -> Run:
    """A run in memory."""
    recipe, *settings = FAMILIES[family]
    run = Run.new(
        path,
        override(RECIPES[recipe], settings),
        train_tokenizer(CharactersConfig(), [TEXT, HOSTILE]),
        {},
    )
    run.model.eval()
    return run


def save_run(path: Path, family: str = "decoder") -> Path:
    """A run in a folder."""
    run = new_run(family, path)
    run.save_description()
    run.save_weights()
    return path


def available(*models: str | Path) -> list[AvailableModel]:
    return find_models([str(model) for model in models])


def client(*models: str | Path, worker: Worker | None = None) -> TestClient:
    """What a browser on this machine asks the server of these models with."""
    app = make_app(available(*models), worker or Worker(), torch.device("cpu"), PORT)
    return TestClient(app, base_url=f"http://127.0.0.1:{PORT}", raise_server_exceptions=False)


@contextmanager
def served(*models: str | Path) -> Iterator[int]:
    """A server of these models in a thread, and its port."""
    with listen(0) as listening:
        port: int = listening.getsockname()[1]
        app = make_app(available(*models), Worker(), torch.device("cpu"), port)
        config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(30)
        assert not thread.is_alive()


def request_body(**changes: Any) -> dict[str, Any]:
    """A request's body."""
    return {"model": 0, "text": TEXT, **changes}
