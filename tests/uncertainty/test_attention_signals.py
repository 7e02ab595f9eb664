"""Signals from attention equal their definitions, computed token by token."""

from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.explorer.intercept import capture_attention
from regard.runs.run import Run, load
from regard.tasks.examples import subject_of
from regard.uncertainty.attention_signals import (
    ALPHA,
    attention_signals,
    rauq,
    subject_attention,
    subject_tokens,
)
from regard.uncertainty.signals import open_prompts
from tiny import QUESTIONS

ASKED = [question.text for question in QUESTIONS[:3]]
ANSWERS = ["Rome", "Oslo", "Rome"]


@pytest.fixture(scope="module")
def loaded(trained: Path) -> Run:
    return load(trained, device="cpu")


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.integers())
def test_rauq_equals_its_recurrence(
    layers: int, heads: int, start: int, tokens: int, seed: int
) -> None:
    rng = np.random.default_rng(abs(seed))
    n = start + tokens
    weights = torch.from_numpy(rng.dirichlet(np.ones(n), size=(layers, heads, n)))
    probabilities = rng.uniform(0.01, 1, tokens)
    worst = []
    for layer in weights.numpy():
        read = [[head[i, i - 1] for i in range(start + 1, n)] for head in layer]
        best = max(read, key=sum)
        confidence = [probabilities[0]]
        for p, a in zip(probabilities[1:], best, strict=True):
            confidence.append(ALPHA * p + (1 - ALPHA) * a * confidence[-1])
        worst.append(sum(map(log, confidence)) / tokens)
    found = rauq(weights, start, torch.from_numpy(probabilities).log())
    assert found == pytest.approx(min(worst), rel=1e-9)


def test_the_subject_is_found_in_the_prompt(loaded: Run) -> None:
    for question, prompt in zip(ASKED, open_prompts(loaded, ASKED), strict=True):
        tokens = subject_tokens(loaded, question, subject_of(question))
        ids = [prompt[i] for i in tokens]
        assert loaded.tokenizer.decode(ids).strip() == subject_of(question)
    assert not subject_tokens(loaded, ASKED[0], "")
    assert not subject_tokens(loaded, ASKED[0], "Nobody Else")


def test_a_question_alone_has_the_same_signals(loaded: Run) -> None:
    environment = loaded.environment()
    together = attention_signals(loaded, ASKED, ANSWERS, environment)
    for i, (question, answer) in enumerate(zip(ASKED, ANSWERS, strict=True)):
        alone = attention_signals(loaded, [question], [answer], environment)
        for name, values in together.items():
            assert alone[name] == pytest.approx([values[i]], rel=1e-4)  # float32


def test_attention_to_the_subject_is_that_of_the_token_before_the_answer(loaded: Run) -> None:
    found = attention_signals(loaded, ASKED, ANSWERS, loaded.environment())
    for i, (question, prompt) in enumerate(zip(ASKED, open_prompts(loaded, ASKED), strict=True)):
        with torch.inference_mode():
            records = capture_attention(loaded.model, torch.tensor([prompt]))
        tokens = subject_tokens(loaded, question, subject_of(question))
        shares = [
            max(sum(float(head[-1, j]) for j in tokens) for head in record.weights[0])
            for record in records
        ]
        given = found["attention to the subject"][i]
        assert given == pytest.approx(sum(shares) / len(shares), rel=1e-4)
        assert 0 <= given <= 1


def test_without_a_subject_there_is_no_attention_to_it() -> None:
    assert subject_attention(torch.rand(2, 2, 3, 3), 2, range(0)) == 0.0
