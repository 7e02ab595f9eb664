"""The application: static files of the page, and its JSON endpoints."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import torch
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from regard.errors import RegardError, UserError
from regard.explorer import page
from regard.explorer.adapters import Adapter
from regard.files import packaged_text
from regard.runs.run import Run
from regard.serve import handlers
from regard.serve.available_models import AvailableModel, model_info
from regard.serve.errors import BusyError, ModelFailedError, ShutdownError
from regard.serve.models import ModelCache, ModelKey
from regard.serve.schemas import (
    AskRequest,
    DetailRequest,
    GenerateRequest,
    HeadsRequest,
    LookRequest,
    ModelInput,
    parse_request,
)
from regard.serve.security import SameOriginMiddleware
from regard.serve.worker import Worker

T = TypeVar("T")
STATUS: dict[type[Exception], int] = {
    UserError: 422,
    ModelFailedError: 500,
    BusyError: 503,
    ShutdownError: 503,
}


class Endpoints:
    """The JSON endpoints of the page."""

    def __init__(
        self, available: Sequence[AvailableModel], cache: ModelCache, worker: Worker
    ) -> None:
        self._available, self._cache, self._worker = available, cache, worker

    def models(self, _: Request) -> Response:
        """List the models. Not asynchronous, so that files are read in a thread."""
        return _json([model_info(model) for model in self._available])

    async def look(self, request: Request) -> Response:
        """Return attention maps."""
        body = await parse_request(request, LookRequest)
        return await self._reply(lambda: self._look(body))

    async def heads(self, request: Request) -> Response:
        """Return the heads of each layer, with the edit that sets each to zero."""
        body = await parse_request(request, HeadsRequest)
        key = ModelKey(body.model, editable=True)
        return await self._reply(lambda: self._cache.use(key, handlers.head_switches))

    async def detail(self, request: Request) -> Response:
        """Return exact values of one head."""
        body = await parse_request(request, DetailRequest)
        return await self._reply(
            lambda: self._use(body, lambda model: handlers.detail_data(model, body))
        )

    async def ask(self, request: Request) -> Response:
        """Return the reply to a question."""
        body = await parse_request(request, AskRequest)
        return await self._reply(lambda: self._ask(body))

    async def generate(self, request: Request) -> Response:
        """Stream generated tokens as lines of JSON; the first one decides the status."""
        body = await parse_request(request, GenerateRequest)
        key = ModelKey(body.model, editable=bool(body.edit))

        def begin() -> tuple[Iterator[dict[str, Any]], dict[str, Any] | None]:
            def lines_of(model: Run | Adapter) -> Iterator[dict[str, Any]]:
                return handlers.generate_lines(model, self._available[body.model].path, body)

            lines = self._cache.use(key, lines_of)
            return lines, self._advance(body.model, lines)

        with self._worker.slot():
            lines, first = await self._worker.run(begin)
        stream = self._stream(body.model, lines, first)
        return StreamingResponse(stream, media_type="application/x-ndjson")

    async def _reply(self, job: Callable[[], Any]) -> Response:
        """Return the result of a job as JSON, once its turn has come."""
        with self._worker.slot():
            return await self._worker.run(lambda: _json(job()))

    def _look(self, body: LookRequest) -> dict[str, Any]:
        sides = [self._use(body, lambda model: handlers.capture_view(model, body))]
        if (other := body.compare) is not None:
            try:
                sides.append(self._use(other, lambda model: handlers.capture_view(model, other)))
            except UserError as error:
                raise UserError(f"other side: {error}") from None
        with self._cache.public_errors(body.model):
            return handlers.look_data(sides, body)

    def _ask(self, body: AskRequest) -> dict[str, Any]:
        return self._cache.use(
            ModelKey(body.model),
            lambda model: handlers.reply_data(model, self._available[body.model].path, body),
        )

    def _use(self, inputs: ModelInput, job: Callable[[Run | Adapter], T]) -> T:
        """Call a function with the model of a request, imported as a run if edits require it."""
        key = ModelKey(inputs.model, inputs.untrained, inputs.imported or bool(inputs.edit))
        return self._cache.use(key, job)

    def _advance(self, model: int, lines: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
        with self._cache.public_errors(model):
            return next(lines, None)

    async def _stream(
        self, model: int, lines: Iterator[dict[str, Any]], line: dict[str, Any] | None
    ) -> AsyncIterator[bytes]:
        """Yield a line of JSON per token; other requests may run in between.

        An error after the first line is sent as a line, too.
        """
        try:
            with self._worker.slot():
                while line is not None:
                    yield msgspec.json.encode(line) + b"\n"
                    line = await self._worker.run(lambda: self._advance(model, lines))
        except RegardError as error:
            yield msgspec.json.encode({"error": str(error)}) + b"\n"


def make_app(
    available: Sequence[AvailableModel],
    worker: Worker,
    device: torch.device,
    port: int,
    edit: str = "",
) -> ASGIApp:
    """Build the application for these models; `edit` is the page's initial text of edits."""
    endpoints = Endpoints(available, ModelCache(available, device), worker)
    routes = [
        Route("/", _static(_read("serve.html"), "text/html")),
        Route("/serve.js", _static(_read("serve.js"), "text/javascript")),
        Route("/generated.js", _static(_read("generated.js"), "text/javascript")),
        Route("/reply.js", _static(_read("reply.js"), "text/javascript")),
        Route("/serve.css", _static(_read("serve.css"), "text/css")),
        Route("/look.js", _static(page.module(), "text/javascript")),
        Route("/look.css", _static(page.style(), "text/css")),
        Route("/models", endpoints.models),
        Route("/edit", _static(edit, "text/plain")),
        Route("/heads", endpoints.heads, methods=["POST"]),
        Route("/look", endpoints.look, methods=["POST"]),
        Route("/detail", endpoints.detail, methods=["POST"]),
        Route("/ask", endpoints.ask, methods=["POST"]),
        Route("/generate", endpoints.generate, methods=["POST"]),
    ]
    handled: dict[Any, Any] = {
        RegardError: _regard_error,
        HTTPException: _http_error,
        ClientDisconnect: lambda *_: Response(status_code=400),  # the client is gone
    }
    return SameOriginMiddleware(Starlette(routes=routes, exception_handlers=handled), port)


def _static(text: str, media_type: str) -> Any:
    return lambda _: Response(text, media_type=media_type)


def _read(name: str) -> str:
    return packaged_text(f"serve/static/{name}")


def _json(data: Any) -> Response:
    return Response(msgspec.json.encode(data), media_type="application/json")


def _regard_error(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, STATUS.get(type(error), 500))


def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)
