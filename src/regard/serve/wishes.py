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
"""Of a request: four texts, with each character escaped."""

Text: TypeAlias = Annotated[str, Meta(max_length=MOST_CHARACTERS)]
Number: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
Numbers: TypeAlias = Annotated[str, Meta(max_length=200)]
"""Some, from 0, such as 0,2-3; all where it is empty."""
W = TypeVar("W", bound=msgspec.Struct)


class Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model that reads a text, or two."""

    model: Number
    text: Text
    second: Text | None = None
    written: Annotated[tuple[Number, ...], Meta(max_length=MOST_NEW)] = ()
    """Tokens that the model wrote about the text, in the place of a second one."""
    untrained: bool = False
    """The model as it was before its training."""


class Look(Reading, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a model does while it reads."""

    beside: Reading | None = None
    """What is shown on the other side, if anything is."""
    word: Annotated[str, Meta(max_length=200)] | None = None
    """The word that is compared between the sides."""
    layers: Numbers = ""
    heads: Numbers = ""


class Steps(Reading, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The exact steps of a head, counted among those that are shown."""

    map: Number
    layer: Number
    head: Number
    layers: Numbers = ""
    heads: Numbers = ""


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model writes, token by token."""

    model: Number
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
