"""The application: a page, its parts, and what it asks for."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from importlib.resources import files
from typing import Any, TypeVar

import msgspec
import torch
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from regard.errors import RegardError, UserError
from regard.explorer import page
from regard.explorer.subjects import Subject
from regard.runs.run import Run
from regard.serve import answers
from regard.serve.about import describe
from regard.serve.failures import BusyError, FailedError, StoppedError
from regard.serve.guard import Guard
from regard.serve.models import Models, Which
from regard.serve.offers import Offer
from regard.serve.wishes import Look, Reading, Steps, Write, read
from regard.serve.worker import Worker

T = TypeVar("T")
STATUS: dict[type[Exception], int] = {
    UserError: 422,
    FailedError: 500,
    BusyError: 503,
    StoppedError: 503,
}


class Endpoints:
    """What the page asks for."""

    def __init__(self, offers: Sequence[Offer], models: Models, worker: Worker) -> None:
        self._offers, self._models, self._worker = offers, models, worker

    def models(self, _: Request) -> Response:
        """The models on offer; not asynchronous, so that it reads their files in a thread."""
        return _json([describe(one) for one in self._offers])

    async def look(self, request: Request) -> Response:
        wish = await read(request, Look)
        with self._worker.place():
            return await self._worker.do(lambda: _json(self._view(wish)))

    async def steps(self, request: Request) -> Response:
        wish = await read(request, Steps)
        with self._worker.place():
            return await self._worker.do(
                lambda: _json(self._ask(wish, lambda model: answers.steps(model, wish)))
            )

    async def write(self, request: Request) -> Response:
        wish = await read(request, Write)
        with self._worker.place():
            lines = await self._worker.do(
                lambda: self._models.use(Which(wish.model), lambda m: answers.write(m, wish))
            )
        return StreamingResponse(self._lines(wish.model, lines), media_type="application/x-ndjson")

    def _view(self, wish: Look) -> dict[str, Any]:
        sides = [self._ask(wish, lambda model: answers.read(model, wish))]
        if (beside := wish.beside) is not None:
            try:
                sides.append(self._ask(beside, lambda model: answers.read(model, beside)))
            except UserError as error:
                raise UserError(f"beside it: {error}") from None
        with self._models.told(wish.model):
            return answers.view(sides, wish)

    def _ask(self, wish: Reading, job: Callable[[Run | Subject], T]) -> T:
        return self._models.use(Which(wish.model, wish.untrained), job)

    async def _lines(self, model: int, lines: Iterator[dict[str, Any]]) -> AsyncIterator[bytes]:
        """A line of JSON a token; between two of them, others have their turn."""

        def advance() -> dict[str, Any] | None:
            with self._models.told(model):
                return next(lines, None)

        try:
            with self._worker.place():
                while (line := await self._worker.do(advance)) is not None:
                    yield msgspec.json.encode(line) + b"\n"
        except RegardError as error:
            yield msgspec.json.encode({"error": str(error)}) + b"\n"


def make_app(offers: Sequence[Offer], worker: Worker, device: torch.device, port: int) -> ASGIApp:
    """The application that serves these models."""
    ends = Endpoints(offers, Models(offers, device), worker)
    routes = [
        Route("/", _fixed(_own("serve.html"), "text/html")),
        Route("/serve.js", _fixed(_own("serve.js"), "text/javascript")),
        Route("/serve.css", _fixed(_own("serve.css"), "text/css")),
        Route("/look.js", _fixed(page.module(), "text/javascript")),
        Route("/look.css", _fixed(page.style(), "text/css")),
        Route("/models", ends.models),
        Route("/look", ends.look, methods=["POST"]),
        Route("/steps", ends.steps, methods=["POST"]),
        Route("/write", ends.write, methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {RegardError: _explain, HTTPException: _refuse}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), port)


def _fixed(text: str, kind: str) -> Any:
    """An endpoint that always answers the same."""
    return lambda _: Response(text, media_type=kind)


def _own(name: str) -> str:
    return (files("regard.serve") / "static" / name).read_text(encoding="utf-8")


def _json(data: Any) -> Response:
    return Response(msgspec.json.encode(data), media_type="application/json")


def _explain(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, STATUS.get(type(error), 500))


def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)
