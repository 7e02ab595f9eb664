"""The attention map of one answer."""

import torch

from regard.evaluation.answers import Answer
from regard.evaluation.figures import attention_maps
from regard.explorer.capture import capture_attention
from regard.runs.machine import Machine
from regard.runs.run import Run
from regard.text.vocabulary import MASK

LONGEST = 48
"""Tokens shown; a longer question keeps its end."""


def attention_figure(run: Run, answer: Answer, machine: Machine) -> str:
    """All heads while the model reads a question and begins its answer, as SVG."""
    ids = [*run.prefix, *run.tokenizer.encode(answer.question), MASK]
    captured = capture_attention(run.model, torch.tensor([ids], device=machine.device))
    return attention_maps(
        [layer.weights[0, :, -LONGEST:, -LONGEST:].float().cpu().numpy() for layer in captured],
        [run.tokenizer.decode([i]) for i in ids[-LONGEST:]],
        title=f"Attention while answering: {answer.question}",
    )
