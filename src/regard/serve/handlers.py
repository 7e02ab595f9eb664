"""Answers to the page: attention maps, details of a head, generated tokens."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

from regard.decoding import Sampling, stream
from regard.decoding.generate import Prompts, encode_prompts
from regard.errors import UserError
from regard.explorer.adapters import Adapter
from regard.explorer.attention_maps import Panel, parse_index_ranges
from regard.explorer.look import look
from regard.explorer.page import TooLargeError, View
from regard.explorer.run_adapter import RunAdapter
from regard.models.builders import SequenceToSequence
from regard.runs.run import Run
from regard.serve.schemas import DetailRequest, GenerateRequest, LookRequest, ModelInput

LAYERS, HEADS = "Only layers", "Only heads"
"""Labels of the fields that select layers and heads."""


def capture_view(model: Run | Adapter, inputs: ModelInput) -> View:
    """Capture the attention of a model while it reads.

    Raises:
        UserError: the model can't read the text, or doesn't have these tokens.
    """
    if inputs.generated is not None:
        generated = list(inputs.generated)
        return view_generated(_require_run(model), inputs.text, generated, raw=inputs.raw)
    return look(model, inputs.text, inputs.second or None)


def look_data(sides: Sequence[View], request: LookRequest) -> dict[str, Any]:
    """Return the page's data for one or two sides, without details.

    Raises:
        UserError: there is too much to show, or no such layer, head or word.
    """
    shown = _select(reduce(View.beside, sides), request.layers, request.heads)
    if request.word is not None:
        shown = shown.comparing(request.word)
    with _page_advice(f"fill in “{LAYERS}” or “{HEADS}”, or choose a shorter text"):
        return shown.with_detail(()).data


def detail_data(model: Run | Adapter, request: DetailRequest) -> dict[str, Any]:
    """Return the exact intermediate values of one head.

    Raises:
        UserError: there is no such head, or its values are too many.
    """
    shown = _select(capture_view(model, request), request.layers, request.heads)
    with _page_advice("choose a shorter text"):
        (side,) = shown.with_detail([(request.map, request.layer, request.head)]).data["panels"]
    exact: dict[str, Any] = side["details"][0]
    return exact


def _select(shown: View, layers: str, heads: str) -> View:
    return shown.only(
        parse_index_ranges(LAYERS, layers) if layers.strip() else None,
        parse_index_ranges(HEADS, heads) if heads.strip() else None,
    )


@contextmanager
def _page_advice(advice: str) -> Iterator[None]:
    """Replace the command line's advice by one that the page's user can follow."""
    try:
        yield
    except TooLargeError as error:
        raise TooLargeError(error.fact, advice) from None


def generate_lines(model: Run | Adapter, request: GenerateRequest) -> Iterator[dict[str, Any]]:
    """Yield each generated token with the text so far; the last line says why it ended.

    Raises:
        UserError: the model doesn't generate, or can't read the text.
    """
    run = _require_run(model)
    prompt = encode_prompts(run, [request.text], run.device, raw=request.raw)
    stop_ids = run.tokenizer.special.stop_ids
    tokens = stream(
        prompt.model,
        prompt.starts,
        max_new_tokens=min(prompt.max_new_tokens, request.max_new_tokens),
        stop_ids=stop_ids,
        sampling=Sampling(temperature=request.temperature, seed=request.seed),
        device=run.device,
    )
    return _lines(prompt, (int(token[0]) for token, _ in tokens), stop_ids)


def _lines(
    prompt: Prompts, tokens: Iterator[int], stop_ids: Sequence[int]
) -> Iterator[dict[str, Any]]:
    ids: list[int] = []
    for token in tokens:
        if token in stop_ids:
            yield {"end": "End of text."}
            return
        ids.append(token)
        yield {"token": token, "text": prompt.text(0, ids, None)}
    yield {
        "end": "The context is full."
        if len(ids) == prompt.max_new_tokens
        else "Token limit reached."
    }


def _require_run(model: Run | Adapter) -> Run:
    if not isinstance(model, Run):
        raise UserError(f"{model.name}: Hugging Face models don't generate here; choose a run")
    return model


def view_generated(run: Run, text: str, generated: list[int], *, raw: bool = False) -> View:
    """Capture the attention of a run while it reads a text and its own continuation.

    Raises:
        UserError: the run doesn't generate, can't read the text, or doesn't have these tokens.
    """
    if max(generated, default=0) >= run.tokenizer.size:
        raise UserError("these tokens aren't in this model's vocabulary; generate again")
    (start,) = encode_prompts(run, [text], run.device, raw=raw).starts
    # When the context is full, the model never reads the last token that it generated.
    ids = [*start, *generated][: run.recipe.model.context_length]
    seq2seq = isinstance(run.model, SequenceToSequence)
    source, target = (run.encode(text)[0], ids) if seq2seq else (ids, [])
    maps = RunAdapter(run).maps_of_rows(source, target)
    return View(f"{run.path.name}: {text}", (Panel(run.path.name, maps, text),))
