"""The attention of one answer, to be looked at."""

import torch

from regard.evaluation.answers import Answer
from regard.explorer.capture import capture_attention
from regard.explorer.maps import Side, end_of, gather_maps
from regard.explorer.page import in_notebook
from regard.explorer.payload import payload
from regard.runs.machine import Machine
from regard.runs.run import Run
from regard.text.vocabulary import MASK

LONGEST = 48
"""Tokens shown; a longer question keeps its end."""


def attention_frame(run: Run, answer: Answer, machine: Machine) -> str:
    """All heads while the model reads a question and begins its answer, as a frame of a page.

    Empty where the model has no attention.
    """
    side = attention_of(run, answer, machine)
    return in_notebook(payload(f"While answering: {answer.question}", [side])) if side.maps else ""


def attention_of(run: Run, answer: Answer, machine: Machine) -> Side:
    """All heads while the model reads a question and begins its answer."""
    ids = [*run.prefix, *run.tokenizer.encode(answer.question), MASK]
    captured = capture_attention(run.model, torch.tensor([ids], device=machine.device))
    maps = gather_maps(captured, [run.tokenizer.show(i) for i in ids])
    return Side(run.path.name, tuple(end_of(one, LONGEST) for one in maps), answer.question)
