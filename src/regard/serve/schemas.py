"""Requests of the page, and their limits."""

from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request

from regard.files import decode_json

MAX_CHARACTERS = 8_000
"""Largest number of characters of a text; the model's context length limits it, too."""
MAX_NEW_TOKENS = 1_024
"""Largest number of generated tokens per request."""
MAX_BYTES = 320 * 1024
"""Largest size of a request: four texts and two edits, with each character escaped."""

Text: TypeAlias = Annotated[str, Meta(max_length=MAX_CHARACTERS)]
Index: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
IndexRanges: TypeAlias = Annotated[str, Meta(max_length=200)]
"""Indices from 0, such as 0,2-3; empty for all."""
T = TypeVar("T", bound=msgspec.Struct)


class TextRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model and a text."""

    model: Index
    text: Text
    edit: Text | None = None
    """Edits of the model, as TOML."""


class ModelInput(TextRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model and its input: one or two texts."""

    second: Text | None = None
    generated: Annotated[tuple[Index, ...], Meta(max_length=MAX_NEW_TOKENS)] | None = None
    """Token ids that the model generated from the text, in place of a second text. If empty, the
    model reads the prompt from which it would generate the first token."""
    raw: bool = False
    """Whether these tokens continue the text without the run's template."""
    untrained: bool = False
    """Use the model as it was initialized, before training."""
    imported: bool = False
    """Whether to import a Hugging Face model as a run, as for edits, to compare both sides."""


class HeadsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The heads of a model that can be edited."""

    model: Index


class ShownRequest(ModelInput, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model, its input, and the layers and heads to show."""

    layers: IndexRanges = ""
    heads: IndexRanges = ""


class LookRequest(ShownRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Attention maps of a model, or of two side by side."""

    compare: ModelInput | None = None
    """The other side, if any."""
    word: Annotated[str, Meta(max_length=200)] | None = None
    """Word to compare between the sides."""


class DetailRequest(ShownRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Exact intermediate values of one head, indexed among the heads that are shown."""

    map: Index
    layer: Index
    head: Index


class GenerateRequest(TextRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Token-by-token generation from a text."""

    max_new_tokens: Annotated[int, Meta(ge=1, le=MAX_NEW_TOKENS)] = 32
    temperature: Annotated[float, Meta(ge=0, le=100)] = 0.0
    seed: Index = 0
    raw: bool = False
    """Whether to continue the text without the run's template."""


class AskRequest(TextRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A question to a run that is trained on questions."""

    expected: Text | None = None
    """The expected answer, if it is known."""


async def parse_request(request: Request, kind: type[T]) -> T:
    """Decode and validate the body of a request.

    Raises:
        HTTPException: the body is too large, isn't JSON, or doesn't match the schema.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "requests are JSON: content-type: application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f"the request is larger than {MAX_BYTES // 1024} KiB")
    try:
        return decode_json(body, kind)
    except ValueError as error:
        raise HTTPException(400, f"invalid request: {error}") from None
