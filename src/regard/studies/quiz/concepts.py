"""Checks of the answers to sixteen questions on concepts."""

from collections.abc import Callable
from typing import Annotated

import torch
from msgspec import Meta

from regard.studies.figure import Line, chart, figure, heat_map, series
from regard.studies.finding import Measurements, table
from regard.studies.quiz import checks
from regard.studies.quiz.checks import DECODER, ENCODER, MASKED_LM, Draw, Std, influence
from regard.studies.study import EvidenceParts, Seed, paragraphs, study


@study()
def concepts(
    tokens: Annotated[int, Meta(ge=2, le=4)] = 4,
    length: Annotated[int, Meta(ge=2, le=4)] = 3,
    std: Std = 0.15,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How are the answers to sixteen questions about language models verified?

    Each answer passes a check that runs. `regard courses --course jhu-hw5` prints questions and
    answers.

    $$ \sum_{y_1, \dots, y_T} \prod_{t=1}^{T} P(y_t \mid y_1, \dots, y_{t-1}) = 1 $$

    The checks run on small untrained models: training can't remove a limitation of an architecture.
    With large weights (std), the influence in an RNN need not fall, and the check of question 13
    fails.

    Figure. Left and middle: influence of each token on each state. In an encoder each token changes
    all states, in a decoder only its own and later ones. Right: influence of the first token by
    distance. With attention it reaches the end, in an RNN it falls exponentially, in a window it
    ends after four tokens. Dotted: {near} tokens.

    Args:
        tokens: vocabulary size in questions 9 and 12
        length: length of the texts in these questions
    """
    draw = Draw(seed, std, tokens, length)
    rows = []
    for i, check in enumerate(CHECKS, 1):
        with torch.no_grad():
            numbers = tuple(check(draw))
        yield from numbers
        (how,) = paragraphs(check)
        if check is checks.pipeline:
            how += f" By words: {checks.followed(draw)}"
        rows.append((i, how, "yes" if all(number.holds for number in numbers) else "no"))
    yield table(["question", "checked by", "passes"], rows)
    curves = [
        series(range(len(curve)), (curve / curve[0].clamp(min=1e-9)).clamp(min=1e-12), name)
        for name, curve in checks.influence_curves(draw).items()
    ]
    by_distance = chart(
        *curves,
        Line(x=checks.NEAR),
        title="influence of the first token",
        x="distance in tokens",
        y="influence",
        y_scale="log",
        y_limits=(1e-8, 10),
    )
    models = {"encoder": draw.model(ENCODER, MASKED_LM), "decoder": draw.model(DECODER)}
    maps, axes = [], {"x": "changed token", "y": "changed state", "unit": "influence"}
    for name, model in models.items():
        changes = influence(model.body, draw.ids(8))
        shares = changes / changes.amax(1, keepdim=True).clamp(min=1e-9)
        maps.append(heat_map(shares, title=name, **axes))
    yield figure(*maps, by_distance, near=checks.NEAR)


CHECKS: tuple[Callable[[Draw], Measurements], ...] = (
    checks.no_labels,
    checks.architecture_and_weights,
    checks.completing,
    checks.classifying,
    checks.many_to_one,
    checks.sources_of_bias,
    checks.pipeline,
    checks.dimensions,
    checks.next_tokens,
    checks.not_a_number,
    checks.the_crab,
    checks.conditional,
    checks.long_inputs,
    checks.heads,
    checks.batching,
    checks.foreign_ids,
)
"""Checks of all questions, in their order; the docstring of each says how."""
