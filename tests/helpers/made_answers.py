"""Answers that no model gave."""

from regard.evaluation.answers import Answer


def made_answer(
    question: str,
    answered: str,
    expected: str | None = None,
    *,
    confidence: float = 0.5,
    abstained: bool = False,
    **signals: float,
) -> Answer:
    """Return an answer with its confidence and signals."""
    return Answer(
        question=question,
        expected=expected,
        answer=None if abstained else answered,
        best_guess=answered,
        confidence=confidence,
        signals=signals,
    )
