"""Small encoders, decoders and encoder–decoders, trained for the tasks of `regard tasks`."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta

from regard import api
from regard.config import override
from regard.environment import ExecutionEnvironment
from regard.errors import UserError
from regard.evaluation.tasks import score_task, scored_examples
from regard.metrics import HIGHEST, Z95, Interval, exact_match, rouge
from regard.models.seq2seq import EncoderDecoder
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.studies.figure import Line, bar_chart, figure
from regard.studies.finding import (
    Measurement,
    Measurements,
    Outside,
    at_least,
    equal,
    informational,
    refused,
)
from regard.studies.model_cache import trained
from regard.studies.study import EvidenceParts, Seed, study
from regard.tasks.examples import Example
from regard.tasks.split import Scores as TaskScores
from regard.training.plan import plan_training
from regard.training.sources.choose import own_source

ENCODER, DECODER, PAIR = "encoder", "decoder", "encoder–decoder"
TEST, LAYERS = 200, 2
"""Number of test questions, and of layers of an encoder or decoder."""
CPU = ExecutionEnvironment.choose("cpu")

Steps = Annotated[int, Meta(ge=1, le=2000, description="training steps of each model")]
Width = Annotated[int, Meta(ge=16, le=256, multiple_of=16, description="width of the models")]
"""Parameters shared by studies."""


def recipe_for(
    task: str, family: str, steps: int, width: int, seed: int, *, source_width: int | None = None
) -> Recipe:
    """Return a task's recipe for one of the families.

    The encoder of an encoder–decoder has the width of the decoder, unless `source_width` is given.
    """

    def part(length: int, d: int, side: str = "") -> list[str]:
        sizes = (f"context_length={length}", f"d_model={d}", f"n_layers={LAYERS}", "n_heads=4")
        return [f"model.{side}{one}" for one in (*sizes, "dropout=0", "positions.kind=rotary")]

    models = {
        ENCODER: ["model.kind=encoder", *part(128, width)],
        DECODER: ["model.kind=decoder", *part(192, width)],
        PAIR: [
            *("model.kind=encoder-decoder", "head.kind=lm"),
            *part(128, source_width or width, "encoder."),
            *part(128, width, "decoder."),
        ],
    }
    training = (f"training.steps={steps}", "training.batch=64", f"task.test={TEST}", f"seed={seed}")
    return override(RECIPES[task], [*models[family], *training])


FAMILIES = {
    "summaries": (PAIR, DECODER),
    "classification": (ENCODER, DECODER, PAIR),
    "retrieval": (ENCODER, DECODER),
    "translation": (PAIR, DECODER),
}
"""Families that can be trained for each task; the course recommends the first."""
RECOMMENDED = {task: families[0] for task, families in FAMILIES.items()}
SCORES = {
    "summaries": "ROUGE-L",
    "classification": "accuracy",
    "retrieval": "MRR",
    "translation": "chrF",
}
"""Score by which families are compared, by task."""
GENERATION = ("summaries", "translation")

Scores = Mapping[str, Mapping[str, Interval]]
"""By task, and by family or by baseline."""


@study(trains=True)
def architectures(steps: Steps = 300, width: Width = 64, seed: Seed = 0) -> EvidenceParts:
    r"""Which architecture for which task: summarize, classify, retrieve, translate?

    Encoder–decoders to generate a text from another, encoders to classify or retrieve. Of these two
    families, the other one can't perform the task or, with four of five seeds, isn't better.

    $$ \text{encoder}: x \mapsto h_{1..n},\quad \text{decoder}: P(y_t \mid y_{<t}),\quad
    \text{both}: P(y_t \mid y_{<t}, x) $$

    Each family is trained for each task that it supports, with the same number of steps, and tested
    on 200 new questions. A decoder classifies by its last state, and an encoder–decoder by
    generating the label. With one seed of five the encoder–decoder classifies better, by 0.15.
    Models, data and number of steps are small: the scores show what is learned first (docs/tasks.md
    has longer trainings).

    Figure. Score of each family on each task that it supports, with 95 % intervals. Dotted: the
    best baseline without a trained model.
    """
    scores, baselines = dict[str, dict[str, Interval]](), dict[str, float]()
    for task, families in FAMILIES.items():
        recipes = {family: recipe_for(task, family, steps, width, seed) for family in families}
        found = {family: score_task(trained(one), CPU) for family, one in recipes.items()}
        scores[task] = {family: _share(one.scores, task) for family, one in found.items()}
        others = found[RECOMMENDED[task]].baselines.values()
        baselines[task] = max(_share(one, task).value for one in others)
    refusals = {
        ENCODER: sum(_refused(task, ENCODER, width) for task in GENERATION),
        PAIR: int(_refused("retrieval", PAIR, width)),
    }
    yield from judged_families(scores, baselines, refusals)
    condition = "the choice is between encoders and encoder–decoders, as in the course"
    yield Outside(condition, [not_worse(scores, task, DECODER) for task in scores])
    panels = []
    for task, by_family in scores.items():
        bars = {"": {family.replace("–", "–\n"): one for family, one in by_family.items()}}
        axes: dict[str, Any] = {"title": task, "y": SCORES[task], "y_limits": (0, 1.08)}
        panels.append(bar_chart(bars, Line(y=baselines[task]), **axes))
    yield figure(*panels, columns=2)


def judged_families(
    scores: Scores, baselines: Mapping[str, float], refusals: Mapping[str, int]
) -> Measurements:
    """Yield the measurements of encoders and encoder–decoders."""
    yield equal("generation tasks not supported by an encoder", refusals[ENCODER], len(GENERATION))
    yield equal("retrieval not supported by an encoder–decoder", refusals[PAIR], 1)
    yield not_worse(scores, "classification", PAIR)
    for task, by in scores.items():
        above = by[RECOMMENDED[task]].value - baselines[task]
        yield at_least(f"{task}: {RECOMMENDED[task]} minus best baseline", above, 0)


def not_worse(scores: Scores, task: str, family: str) -> Measurement:
    """Return the lead of the recommended family; two standard errors and 0.01 are allowed."""
    recommended = RECOMMENDED[task]
    own, other = scores[task][recommended], scores[task][family]
    errors = [(score.high - score.low) / (2 * Z95) for score in (own, other)]
    allowed = 0.01 + 2 * math.hypot(*errors)
    return at_least(f"{task}: {recommended} minus {family}", own.value - other.value, -allowed)


def _refused(task: str, family: str, width: int) -> bool:
    """Return whether a family can't be trained for a task."""
    recipe = recipe_for(task, family, 1, width, 0)
    with_head = msgspec.structs.replace(recipe, head=RECIPES[task].head)
    return refused(lambda: plan_training(own_source(with_head), with_head, "unused"), UserError)


def _share(scores: TaskScores, task: str) -> Interval:
    """Return the task's score, from 0 to 1."""
    score, most = scores[SCORES[task]], HIGHEST[SCORES[task]]
    return Interval(score.value / most, score.low / most, score.high / most)


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
        (source, target): trained(
            recipe_for("summaries", PAIR, steps, target, seed, source_width=source)
        )
        for source, target in ((width, width), (narrow, width), (width, narrow))
    }
    found = {widths: score_task(run, CPU) for widths, run in runs.items()}
    scores = {widths: one.scores["ROUGE-L"] for widths, one in found.items()}
    baseline = found[width, width].baselines["lead-2"]["ROUGE-L"].value
    changed = changed_shapes(runs[width, width], runs[narrow, width])
    yield from judged_widths(scores, baseline, changed, not accepts(runs[width, narrow], narrow))
    yield bar_chart(
        {"": {f"encoder {s}, decoder {t}": one for (s, t), one in scores.items()}},
        Line(y=baseline, label="baseline lead-2"),
        y="ROUGE-L",
        y_limits=(0, 1.08),
    )


def judged_widths(
    scores: Mapping[tuple[int, int], Interval], baseline: float, changed: list[str], refuses: bool
) -> Measurements:
    """Yield the measurements that the claim depends on."""
    projections = sum(name.endswith("cross_attention.kv_proj.weight") for name in changed)
    for (source, target), one in scores.items():
        yield at_least(f"encoder {source}, decoder {target}: ROUGE-L", one.value, baseline + 0.2)
    yield equal("decoder tensors whose shape depends on the encoder's width", len(changed), LAYERS)
    yield equal("key and value projections of cross-attention among them", projections, LAYERS)
    yield equal("a trained decoder raises an error on states of another width", refuses, 1)


def changed_shapes(one: Run, other: Run) -> list[str]:
    """Return the decoder's tensors whose shape differs between two models."""
    first, second = (dict(_body(run).decoder.named_parameters()) for run in (one, other))
    return [name for name, tensor in first.items() if tensor.shape != second[name].shape]


@torch.inference_mode()
def accepts(run: Run, width: int) -> bool:
    """Return whether a trained decoder can read encoder states of some width."""
    states, decoder = torch.zeros(1, 3, width), _body(run).decoder
    return not refused(lambda: decoder.encode_memory(states, torch.tensor([3])), RuntimeError)


def _body(run: Run) -> EncoderDecoder:
    body = run.model.body
    assert isinstance(body, EncoderDecoder)
    return body


GREEDY, BEAMS = "greedy", "beam search"
LOW, HIGH, TOP_K, TOP_P = "sampling, low temperature", "sampling", "top-k", "top-p"
LONGEST = 20
"""Maximum number of tokens of a summary."""
QUALITY, RIGHT, DIFFERENT, ALIKE = "mean ROUGE-L", "right", "different", "ROUGE-L of two"
"""Scores of several summaries per article: the mean of all; share of articles with at least one
equal to the reference; mean number of distinct ones; mean over two of the same article."""


@study(trains=True)
def several_summaries(
    n: Annotated[int, Meta(ge=2, le=10)] = 5,
    temperature: Annotated[float, Meta(gt=0, le=2)] = 0.5,
    k: Annotated[int, Meta(ge=1, le=50)] = 2,
    p: Annotated[float, Meta(gt=0, le=1)] = 0.8,
    articles: Annotated[int, Meta(ge=10, le=200)] = 60,
    steps: Steps = 300,
    width: Width = 64,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How can a model generate several summaries of an article, and how do they differ?

    Beam search returns n different summaries; greedy decoding always returns the same one. Samples
    differ more the higher the temperature, and are worse on average. Top-k and top-p restore
    quality and reduce the differences. Summaries by beam search are more similar to each other than
    samples of temperature 1.

    $$ P_\tau(y_t) \propto P(y_t \mid y_{<t}, x)^{1/\tau}, \quad \text{top-}k,\ \text{top-}p:
    \text{the most probable tokens only} $$

    An encoder–decoder trained to summarize generates n summaries of each new article by each
    method.

    Figure. {n} summaries of each article by each method. Bars: mean ROUGE-L; share of articles with
    one of the {n} equal to the reference; share of distinct summaries; mean ROUGE-L of two
    summaries of the same article.

    Args:
        n: summaries per article
        temperature: low temperature
        k: number of tokens of top-k
        p: probability mass of top-p
        articles: number of new articles
    """
    run = trained(recipe_for("summaries", PAIR, steps, width, seed))
    questions = scored_examples(run, None)[:articles]
    texts = [question.text for question in questions]
    samplings: dict[str, dict[str, float]] = {
        GREEDY: {"temperature": 0.0},
        LOW: {"temperature": temperature},
        HIGH: {"temperature": 1.0},
        TOP_K: {"temperature": 1.0, "top_k": k},
        TOP_P: {"temperature": 1.0, "top_p": p},
    }
    found = {BEAMS: beams(run, texts, n)} | {
        name: samples(run, texts, n, seed, **sampling) for name, sampling in samplings.items()
    }
    scores = {name: scored(summaries, questions) for name, summaries in found.items()}
    yield from judged_methods(scores, n)
    bars = {
        QUALITY: {name: one[QUALITY] for name, one in scores.items()},
        f"one of {n} is right": {name: one[RIGHT] for name, one in scores.items()},
        f"different, of {n}": {name: one[DIFFERENT] / n for name, one in scores.items()},
        ALIKE: {name: one[ALIKE] for name, one in scores.items()},
    }
    yield bar_chart(bars, y="share", y_limits=(0, 1.08))


def judged_methods(scores: Mapping[str, Mapping[str, float]], n: int) -> Measurements:
    """Yield the measurements that the claim depends on."""
    quality, different, alike = (
        {name: one[score] for name, one in scores.items()} for score in (QUALITY, DIFFERENT, ALIKE)
    )
    yield equal("different summaries, beam search", different[BEAMS], n)
    yield equal("different summaries, greedy", different[GREEDY], 1)
    for a, b in ((LOW, GREEDY), (HIGH, LOW), (HIGH, TOP_K), (HIGH, TOP_P)):
        yield at_least(f"different summaries: {a} minus {b}", different[a] - different[b], 0)
    for a, b in ((BEAMS, HIGH), (LOW, HIGH), (TOP_K, HIGH), (TOP_P, HIGH)):
        yield at_least(f"mean ROUGE-L: {a} minus {b}", quality[a] - quality[b], 0)
    yield at_least("mean ROUGE-L, greedy", quality[GREEDY], 0.5)
    for name in (BEAMS, LOW, HIGH, TOP_K, TOP_P):
        yield informational(f"ROUGE-L of two summaries, {name}", alike[name])
    name = f"ROUGE-L of two summaries: {BEAMS} minus {HIGH}"
    yield at_least(name, alike[BEAMS] - alike[HIGH], 0)


def beams(run: Run, texts: Sequence[str], n: int) -> list[list[str]]:
    """Return the n best summaries of each text by beam search with n beams."""
    found = api.beam_search(run, texts, num_beams=n, num_return_sequences=n, max_new_tokens=LONGEST)
    return [[beam.text for beam in best] for best in found]


def samples(
    run: Run, texts: Sequence[str], n: int, seed: int, **sampling: float
) -> list[list[str]]:
    """Return n samples for each text."""
    prompts = [text for text in texts for _ in range(n)]
    drawn = api.generate(run, prompts, max_new_tokens=LONGEST, seed=seed, **sampling)  # type: ignore[arg-type]
    return [drawn[start : start + n] for start in range(0, len(drawn), n)]


def scored(summaries: Sequence[Sequence[str]], questions: Sequence[Example]) -> dict[str, float]:
    """Return the scores of several summaries per question."""
    right = [question.answer or "" for question in questions]
    given = list(zip(summaries, right, strict=True))
    pairs = [(one, answer) for several, answer in given for one in several]
    couples = [two for several in summaries for two in combinations(several, 2)]
    return {
        QUALITY: rouge(*zip(*pairs, strict=True))["ROUGE-L"].value,
        RIGHT: fmean(any(exact_match(x, answer) for x in several) for several, answer in given),
        DIFFERENT: fmean(len({*several}) for several in summaries),
        ALIKE: rouge(*zip(*couples, strict=True))["ROUGE-L"].value,
    }
