"""Handlers of the page's requests: attention maps, details of a head, tokens, replies."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path, PurePath
from typing import Any

from regard.corpus.evidence import VERDICTS, Evidence, Passage
from regard.decoding import Sampling, stream
from regard.edits.apply import edited
from regard.edits.edit import EACH_NEW, Edit, Edits, parse_edit, zero
from regard.edits.sites import sites
from regard.errors import UserError
from regard.evaluation.answers import answer
from regard.explorer.adapters import Adapter
from regard.explorer.attention_maps import Panel, most_probable, parse_index_ranges
from regard.explorer.look import adapter_of, editable, look, without_edited_positions
from regard.explorer.page import TooLargeError, View
from regard.runs.run import Run
from regard.runs.training_text import open_run_index
from regard.serve.schemas import (
    AskRequest,
    DetailRequest,
    GenerateRequest,
    LookRequest,
    ModelInput,
    ShownRequest,
    TextRequest,
)
from regard.tasks.examples import Example
from regard.uncertainty.calibration import load_calibration, require_answering
from regard.uncertainty.signals import SIGNALS

LAYERS, HEADS = "Only layers", "Only heads"
"""Labels of the fields that select layers and heads."""


def capture_view(model: Run | Adapter, inputs: ModelInput) -> View:
    """Capture the attention of a model while it reads.

    Raises:
        UserError: the model can't read the text, or doesn't have these tokens.
    """
    edits = edits_of(inputs)
    if inputs.generated is None:
        return look(model, inputs.text, inputs.second or None, edit=edits)
    adapter = adapter_of(model)
    if not inputs.generated:  # no token is new yet
        edits = Edits(tuple(one for one in edits.edits if not _is_of_new(one)))
    with ExitStack() as applied:
        if edits.edits:
            (start,) = adapter.prompt(inputs.text, raw=inputs.raw).starts
            applied.enter_context(edited(editable(model), edits, prompt_tokens=len(start)))
        maps = adapter.maps_of_generated(inputs.text, inputs.generated, raw=inputs.raw)
    maps = without_edited_positions(maps, edits)
    name = f"{adapter.name}, edited" if edits.edits else adapter.name
    return View(f"{name}: {inputs.text}", (Panel(name, maps, inputs.text),))


def _is_of_new(edit: Edit) -> bool:
    """Return whether an edit is of tokens after the prompt alone."""
    return EACH_NEW in (getattr(edit, name, None) for name in ("at", "query", "key"))


def edits_of(request: TextRequest) -> Edits:
    """Return the edits of a request.

    Raises:
        UserError: they are invalid.
    """
    return parse_edit(request.edit, where="edit") if request.edit else Edits()


def look_data(sides: Sequence[View], request: LookRequest) -> dict[str, Any]:
    """Return the page's data for one or two sides, without details.

    Raises:
        UserError: there is too much to show, or no such layer, head or word.
    """
    shown = _select(reduce(View.beside, sides), request)
    if request.word is not None:
        shown = shown.comparing(request.word)
    with _page_advice(f"fill in “{LAYERS}” or “{HEADS}”, or choose a shorter text"):
        return shown.with_detail(()).data


def detail_data(model: Run | Adapter, request: DetailRequest) -> dict[str, Any]:
    """Return the exact intermediate values of one head.

    Raises:
        UserError: there is no such head, or its values are too many.
    """
    shown = _select(capture_view(model, request), request)
    with _page_advice("choose a shorter text"):
        (side,) = shown.with_detail([(request.map, request.layer, request.head)]).data["panels"]
    exact: dict[str, Any] = side["details"][0]
    return exact


def _select(shown: View, request: ShownRequest) -> View:
    layers, heads = (
        parse_index_ranges(field, text) if text.strip() else None
        for field, text in ((LAYERS, request.layers), (HEADS, request.heads))
    )
    return shown.only(layers, heads)


@contextmanager
def _page_advice(advice: str) -> Iterator[None]:
    """Replace the command line's advice by advice for users of the page."""
    try:
        yield
    except TooLargeError as error:
        raise TooLargeError(error.fact, advice) from None


def head_switches(model: Run | Adapter) -> list[dict[str, Any]]:
    """Return the heads of each layer, with the edit that sets each to zero.

    Raises:
        UserError: the model has no sites.
    """
    layers: dict[str, list[str]] = {}
    for site in sites(editable(model)):
        if site.part == "heads":
            layers.setdefault(site.layer, []).append(zero(site.name).to_toml())
    return [{"layer": layer, "edits": of_heads} for layer, of_heads in layers.items()]


def generate_lines(
    model: Run | Adapter, folder: Path, request: GenerateRequest
) -> Iterator[dict[str, Any]]:
    """Yield each token with the text before and with it and the candidates, then why it ends.

    An edited model generates all tokens first, as other requests use the model between tokens. In
    the folder of a run are its weights, by which its compiled packages are found.

    Raises:
        UserError: the model doesn't generate, or can't read the text, or the edit doesn't fit.
    """
    if isinstance(model, Run):
        model = replace(model, path=folder)
    if not (edits := edits_of(request)).edits:
        return _generated(adapter_of(model), request)
    with edited(editable(model), edits):
        return iter(list(_generated(adapter_of(model), request)))


def _generated(adapter: Adapter, request: GenerateRequest) -> Iterator[dict[str, Any]]:
    prompt = adapter.prompt(request.text, raw=request.raw)
    tokens = stream(
        prompt.model,
        prompt.starts,
        max_new_tokens=min(prompt.max_new_tokens, request.max_new_tokens),
        stop_ids=prompt.stop_ids,
        sampling=Sampling(temperature=request.temperature, seed=request.seed),
        device=adapter.device,
    )
    ids: list[int] = []
    before = prompt.text(0, ids, None)
    for new, logits in tokens:
        token = int(new)
        if token in prompt.stop_ids:
            yield {"end": "End of text."}
            return
        ids.append(token)
        text = prompt.text(0, ids, None)
        yield {
            "token": token,
            "name": adapter.token_text(token),
            "before": before,
            "text": text,
            "candidates": most_probable("next token", logits[0], adapter.token_text).candidates,
        }
        before = text
    full = len(ids) == prompt.max_new_tokens
    yield {"end": "The context is full." if full else "Token limit reached."}


# Replies to questions

MAX_PASSAGES = 10
"""Largest number of sentences of evidence, and of other answers, on the page."""


def reply_data(model: Run | Adapter, folder: Path, request: AskRequest) -> dict[str, Any]:
    """Return a run's reply to a question, with the calibration and index of its folder.

    Both are read for each request, since `regard calibrate` may run while the page is served. The
    calibration doesn't apply to an edited run.

    Raises:
        UserError: the model isn't trained on questions, its calibration or index is damaged, or the
            edit doesn't fit.
    """
    if not isinstance(model, Run):
        raise UserError(f"{model.name}: Hugging Face models don't answer here; choose a run")
    require_answering(model)
    edits, model = edits_of(request), replace(model, path=folder)
    environment = model.environment()
    calibration = None if edits.edits else load_calibration(folder, environment)
    expected = (request.expected or "").strip() or None
    with edited(model, edits):
        (reply,) = answer(
            model,
            [Example(text=request.text.strip(), answer=expected, where="question")],
            environment,
            calibration=calibration,
            index=open_run_index(model),
        )
    return {
        "question": reply.question,
        "subject": reply.subject,
        "answer": reply.answer,
        "best_guess": reply.best_guess,
        "confidence": reply.confidence,
        "calibrated": calibration is not None,
        "reason": reply.reason,
        "evidence": None if reply.evidence is None else _evidence_data(reply.evidence),
        "signals": [
            {"name": name, "value": value, "definition": SIGNALS.get(name, "")}
            for name, value in reply.signals.items()
        ],
    }


def _evidence_data(evidence: Evidence) -> dict[str, Any]:
    """Return the evidence with its first sentences, each cut around the answer."""
    other = evidence.contradiction
    return {
        "verdict": evidence.verdict,
        "meaning": VERDICTS[evidence.verdict],
        "documents": evidence.documents,
        **_passages_data(evidence.passages),
        "contradiction": other and {"answer": other.answer} | _passages_data(other.passages),
        "others": list(evidence.others.items())[:MAX_PASSAGES],
    }


def _passages_data(passages: Sequence[Passage]) -> dict[str, Any]:
    return {
        "sentences": len(passages),
        "passages": [
            {
                "place": f"{_public(one.path)}:{one.line}",
                "parts": (
                    one.text[: one.start],
                    one.text[one.start : one.end],
                    one.text[one.end :],
                ),
            }
            for one in passages[:MAX_PASSAGES]
        ],
    }


def _public(path: str) -> str:
    """Return the name of a file in place of its absolute path."""
    return PurePath(path).name if PurePath(path).is_absolute() else path
