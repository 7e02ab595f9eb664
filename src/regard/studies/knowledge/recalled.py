"""Signals of confidence for right and wrong answers, and for answers about absent people."""

from collections.abc import Mapping, Sequence
from textwrap import shorten

import numpy as np

from regard.evaluation.answers import Answer, answer
from regard.evaluation.evaluate import signal_aurocs
from regard.evaluation.report import attention_of
from regard.experiments.recall import WORDINGS
from regard.explorer.page import serialize
from regard.metrics import Interval, auroc, risk_coverage
from regard.studies.figure import Line, Panel, bar_chart, chart, figure, histogram, series
from regard.studies.finding import Measurements, Table, at_least, at_most, named, table
from regard.studies.knowledge import fictional
from regard.studies.knowledge.fictional import People, Steps
from regard.studies.study import EvidenceParts, Seed, study
from regard.uncertainty.signals import quick_signals

SIGNALS = {"probability": "confidence", "familiarity": "familiarity", "agreement": "agreement"}
"""Names here, and in an answer: the confidence of an uncalibrated run is the probability."""
SHOWN = 4
"""Number of answers of each kind in the table."""

Aurocs = Mapping[str, Interval]
"""AUROC by signal."""
Kinds = Mapping[str, Sequence[Answer]]
"""Right answers, wrong answers, and answers about absent people."""


@study(trains=True)
def recalled(people: People = 160, steps: Steps = 800, seed: Seed = 0) -> EvidenceParts:
    r"""Can right answers be distinguished from wrong ones, and recalled from invented ones?

    Not by the answers: each is a place that exists. But signals of the model separate them, a
    different one for each kind of doubt. Familiarity of the name separates mentioned from absent
    people, and says little about right and wrong. The probability of the answer separates right
    from wrong better than chance, and says little about absence.

    $$ \mathrm{AUROC} = P(s_{\text{trusted}} > s_{\text{doubted}}) + \tfrac{1}{2}
    P(s_{\text{trusted}} = s_{\text{doubted}}) $$

    The model answers questions about people whom the text mentions, and about absent people, whose
    first and last names occur in the text, but not together. Familiarity is the log-probability of
    the name at the start of a text. The curves show the share of wrong answers if only the most
    confident ones are given.

    Figure. Above: right, wrong and invented answers by probability and by familiarity. Below left:
    AUROC of each signal for both kinds of doubt, with 95 % intervals; dotted: chance. Below right:
    risk against coverage for mentioned people.
    """
    world = fictional.small_world(people, 0.0, seed)
    run = fictional.pretrained(world, fictional.small_recipe(steps, seed))
    mentioned, absent = (
        answer(run, world.questions(group), fictional.CPU, signals=quick_signals(WORDINGS))
        for group in ("text_only", "absent")
    )
    kinds = {
        "right": [a for a in mentioned if a.correct],
        "wrong": [a for a in mentioned if not a.correct],
        "absent": absent,
    }
    absence = named_aurocs(mentioned, absent)
    wrongness = named_aurocs(kinds["right"], kinds["wrong"])
    places = {person.place for person in world.people}
    yield from judged(kinds, places, absence, wrongness)
    yield _examples(kinds)
    yield figure(
        *(_histogram(kinds, signal) for signal in ("probability", "familiarity")),
        _aurocs({"mentioned / absent": absence, "right / wrong": wrongness}),
        _risk([*kinds["right"], *kinds["wrong"]]),
        columns=2,
    )
    sides = [
        attention_of(named(run, name), answers[0], fictional.CPU)
        for name, answers in (("text only", mentioned), ("absent", absent))
    ]
    yield serialize("while answering about two people", sides, [(0, 0, 0)])


def _examples(kinds: Kinds) -> Table:
    rows = []
    for kind, answers in kinds.items():
        for one in answers[:SHOWN]:
            who = one.question.removeprefix("Where was ").removesuffix(" born?")
            scores = [one.scores[name] for name in SIGNALS.values()]
            rows.append((kind, who, shorten(one.answered, 24), one.expected or "?", *scores))
    return table(["kind", "person", "answer", "true", *SIGNALS], rows)


def judged(kinds: Kinds, places: set[str], absence: Aurocs, wrongness: Aurocs) -> Measurements:
    """Yield the measurements that the claim depends on."""
    right, wrong, absent = kinds.values()
    invented = sum(answer.answered in places for answer in absent) / len(absent)
    share = len(right) / (len(right) + len(wrong))
    by_place = by_text([*right, *wrong], absent)
    yield at_least("accuracy on people in the text only", share, 0.5)
    yield at_least("invented answers that name a place", invented, 0.9)
    yield at_most("mentioned / absent: AUROC of the answer's text", by_place, 0.7)
    yield at_least("mentioned / absent: AUROC of familiarity", absence["familiarity"].value, 0.9)
    yield at_most("mentioned / absent: AUROC of probability", absence["probability"].value, 0.75)
    yield at_least("right / wrong: answers in the smaller group", min(len(right), len(wrong)), 2)
    if wrongness:
        yield at_least("right / wrong: AUROC of probability", wrongness["probability"].value, 0.55)
        yield at_most("right / wrong: AUROC of familiarity", wrongness["familiarity"].value, 0.75)


def named_aurocs(trusted: Sequence[Answer], doubted: Sequence[Answer]) -> Aurocs:
    """Return the AUROC of each signal by its name here; none of fewer than two answers."""
    found = signal_aurocs(trusted, doubted)
    return {name: found[score] for name, score in SIGNALS.items()} if found else {}


def by_text(mentioned: Sequence[Answer], absent: Sequence[Answer]) -> float:
    """Return the AUROC of the place alone, by its frequency among the answers."""
    said = [a.answered for a in (*mentioned, *absent)]
    common, invented = ([said.count(a.answered) for a in group] for group in (mentioned, absent))
    found = auroc(common, invented)
    return max(found, 1 - found)


def _histogram(kinds: Kinds, signal: str) -> Panel:
    values = {kind: [a.scores[SIGNALS[signal]] for a in answers] for kind, answers in kinds.items()}
    ends = [value for several in values.values() for value in several]
    edges = np.linspace(min(ends), max(ends) + 1e-9, 21).tolist()
    steps = [histogram(several, edges, kind) for kind, several in values.items()]
    return chart(*steps, x=signal, y="answers")


def _aurocs(found: Mapping[str, Aurocs]) -> Panel:
    groups = {kind: aurocs for kind, aurocs in found.items() if aurocs}
    return bar_chart(groups, Line(y=0.5), y="AUROC", y_limits=(0, 1.05))


def _risk(answers: Sequence[Answer]) -> Panel:
    correct, lines = [answer.correct for answer in answers], []
    for signal, name in SIGNALS.items():
        curve = risk_coverage([answer.scores[name] for answer in answers], correct)
        lines.append(series(*curve, f"by {signal}"))
    return chart(*lines, x="share of questions answered", y="share of wrong answers")
