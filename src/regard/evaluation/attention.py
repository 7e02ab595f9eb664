"""Attention of one answer."""

import torch

from regard.evaluation.answers import Answer
from regard.explorer.attention_maps import Panel, end_of, gather_maps
from regard.explorer.intercept import capture_attention
from regard.explorer.page import embedded
from regard.explorer.serialize import serialize
from regard.runs.environment import ExecutionEnvironment
from regard.runs.run import Run

LONGEST = 48
"""Most tokens to show; of a longer question, the last ones."""


def attention_view(run: Run, answer: Answer, environment: ExecutionEnvironment) -> str:
    """Return the attention of all heads to a question, as a part of a page.

    Empty if the model has no attention.
    """
    panel = attention_of(run, answer, environment)
    title = f"While answering: {answer.question}"
    return embedded(serialize(title, [panel])) if panel.maps else ""


def attention_of(run: Run, answer: Answer, environment: ExecutionEnvironment) -> Panel:
    """Return the attention of all heads to a question and the start of its answer."""
    prompt = run.template.prompt.around(run.tokenizer.encode(answer.question))
    ids = run.template.open_answer(prompt)
    records = capture_attention(run.model, torch.tensor([ids], device=environment.device))
    maps = gather_maps(records, [run.tokenizer.decode([i]) for i in ids])
    return Panel(run.path.name, tuple(end_of(one, LONGEST) for one in maps), answer.question)
