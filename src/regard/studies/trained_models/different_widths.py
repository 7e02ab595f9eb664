"""Encoder–decoders with an encoder and a decoder of different widths."""

from collections.abc import Mapping

import torch

from regard.environment import ExecutionEnvironment
from regard.evaluation.tasks import score_task
from regard.metrics import Interval
from regard.models.seq2seq import EncoderDecoder
from regard.runs.run import Run
from regard.studies.figure import Line, bar_chart
from regard.studies.finding import Measurements, at_least, equal, refused
from regard.studies.model_cache import trained
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.trained_models.task_models import PAIR, Steps, Width, recipe_for

TASK, SCORE, BASELINE = "summaries", "ROUGE-L", "lead-2"
LAYERS = 2
"""Number of layers of the decoder."""

Widths = tuple[int, int]
"""Widths of an encoder and a decoder."""


@study(trains=True)
def different_widths(steps: Steps = 300, width: Width = 64, seed: Seed = 0) -> EvidenceParts:
    r"""Must encoder and decoder have the same width?

    No. Only the key and value projections of the cross-attention read the encoder's states, and
    they map any width to that of the decoder's heads. Models with a narrower encoder or a narrower
    decoder learn the task too.

    $$ K = H_{enc} W_K,\quad V = H_{enc} W_V,\quad W_K, W_V \in \mathbb{R}^{d_{enc} \times h
    d_{head}},\quad Q = H_{dec} W_Q,\quad W_Q \in \mathbb{R}^{d_{dec} \times h d_{head}} $$

    Three encoder–decoders learn to summarize articles, and are tested on 200 new ones: one with
    equal widths, one with an encoder of half the width, and one with such a decoder.

    Figure. ROUGE-L of summaries by encoder–decoders of equal and of different widths, with 95 %
    intervals. Dotted: the first two sentences of the article.
    """
    narrow = width // 2
    runs = {
        (source, target): trained(recipe_for(TASK, PAIR, steps, target, seed, source_width=source))
        for source, target in ((width, width), (narrow, width), (width, narrow))
    }
    environment = ExecutionEnvironment.choose("cpu")
    found = {widths: score_task(run, environment) for widths, run in runs.items()}
    scores = {widths: one.scores[SCORE] for widths, one in found.items()}
    baseline = found[width, width].baselines[BASELINE][SCORE].value
    changed = changed_shapes(runs[width, width], runs[narrow, width])
    accepted = accepts(runs[width, narrow], narrow)
    yield from judged(scores, baseline, changed, not accepted)
    yield bar_chart(
        {"": {f"encoder {s}, decoder {t}": one for (s, t), one in scores.items()}},
        Line(y=baseline, label=f"baseline {BASELINE}"),
        y=SCORE,
        y_limits=(0, 1.08),
    )


def judged(
    scores: Mapping[Widths, Interval], baseline: float, changed: list[str], refuses: bool
) -> Measurements:
    """Yield the measurements that the claim depends on."""
    projections = sum(name.endswith("cross_attention.kv_proj.weight") for name in changed)
    for (source, target), one in scores.items():
        yield at_least(f"encoder {source}, decoder {target}: {SCORE}", one.value, baseline + 0.2)
    yield equal("decoder tensors whose shape depends on the encoder's width", len(changed), LAYERS)
    yield equal("key and value projections of cross-attention among them", projections, LAYERS)
    yield equal("a trained decoder raises an error on states of another width", refuses, 1)


def changed_shapes(one: Run, other: Run) -> list[str]:
    """Return the decoder's tensors whose shape differs between two models."""
    shapes = [
        {name: tensor.shape for name, tensor in _body(run).decoder.named_parameters()}
        for run in (one, other)
    ]
    return [name for name, shape in shapes[0].items() if shapes[1][name] != shape]


@torch.inference_mode()
def accepts(run: Run, width: int) -> bool:
    """Return whether a trained decoder can read encoder states of some width."""
    states, decoder = torch.zeros(1, 3, width), _body(run).decoder
    return not refused(lambda: decoder.encode_memory(states, torch.tensor([3])), RuntimeError)


def _body(run: Run) -> EncoderDecoder:
    body = run.model.body
    assert isinstance(body, EncoderDecoder)
    return body
