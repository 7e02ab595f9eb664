"""What a page may ask for, and its bounds."""

from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request

MOST_CHARACTERS = 8_000
"""Of a text. Its tokens are bounded by the model's block besides."""
MOST_NEW = 1_024
"""Tokens that a model writes at a request."""
MOST_BYTES = 256 * 1024
"""Of a request: two texts, with each character escaped."""

Text: TypeAlias = Annotated[str, Meta(max_length=MOST_CHARACTERS)]
Number: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
W = TypeVar("W", bound=msgspec.Struct)


class Look(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run does while it reads."""

    run: Number
    text: Text
    second: Text | None = None
    written: Annotated[tuple[Number, ...], Meta(max_length=MOST_NEW)] = ()
    """Tokens that the run wrote about the text, in the place of a second one."""


class Steps(Look, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The exact steps of a head."""

    map: Number
    layer: Number
    head: Number


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run writes, token by token."""

    run: Number
    text: Text
    tokens: Annotated[int, Meta(ge=1, le=MOST_NEW)] = 32
    temperature: Annotated[float, Meta(ge=0, le=100)] = 0.0
    seed: Number = 0


async def read(request: Request, kind: type[W]) -> W:
    """What a request asks for.

    Raises:
        HTTPException: it is no JSON, too large, or asks for something else.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "requests are JSON: content-type: application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"the request is larger than {MOST_BYTES // 1024} KiB")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise HTTPException(400, f"the request can't be read: {error}") from None
