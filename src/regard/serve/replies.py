"""Replies to questions, as the page shows them: answer, confidence, evidence, signals."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from regard.corpus.evidence import VERDICTS, Evidence, Passage
from regard.edits.apply import edited
from regard.errors import UserError
from regard.evaluation.answers import answer
from regard.explorer.adapters import Adapter
from regard.runs.run import Run
from regard.runs.training_text import open_run_index
from regard.serve.handlers import edits_of
from regard.serve.schemas import AskRequest
from regard.tasks.examples import Example
from regard.uncertainty.calibration import load_calibration, require_answering
from regard.uncertainty.signals import SIGNALS

SHOWN = 10
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
    calibration = None if edits.edits else load_calibration(folder)
    expected = (request.expected or "").strip() or None
    with edited(model, edits):
        (reply,) = answer(
            model,
            [Example(text=request.text.strip(), answer=expected, where="question")],
            model.environment(),
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
        "others": list(evidence.others.items())[:SHOWN],
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
            for one in passages[:SHOWN]
        ],
    }


def _public(path: str) -> str:
    """Return the name of a file in place of its absolute path."""
    return PurePath(path).name if PurePath(path).is_absolute() else path
