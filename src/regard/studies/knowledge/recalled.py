"""Right answers, wrong answers, and answers about absent people."""

from collections.abc import Sequence
from textwrap import shorten
from typing import Any

import numpy as np

from regard.drawing import COLORS, panels
from regard.evaluation.answers import Answer, answer_questions
from regard.evaluation.confidence import Chosen, choose_signal
from regard.evaluation.report import attention_of
from regard.explorer.page import serialize
from regard.metrics import auroc
from regard.runs.run import Run
from regard.studies.finding import (
    Drawing,
    Evidence,
    Measurement,
    at_least,
    at_most,
    drawing,
    informational,
    named,
    table,
)
from regard.studies.knowledge.fictional import (
    CPU,
    People,
    Steps,
    WorldSeed,
    pretrained,
    small_recipe,
    small_world,
)
from regard.studies.recall import WORDINGS
from regard.studies.study import study

SIGNALS = ("probability", "familiarity", "agreement")
SHOWN = 4
"""Answers of each kind in the table."""


@study(
    asked=["practical-4 4.b", "practical-4 4.c"],
    question="Can recalled answers be separated from invented ones?",
    claim="Not by the answers: each is a place that exists. But a signal of the model "
    "separates them: it ranks most pairs of a recalled and an invented answer "
    "correctly.",
    formula=r"\mathrm{AUROC} = P(s_{\text{recalled}} > s_{\text{made up}}) \ge 0.8",
    trains=True,
)
def recalled(
    people: People = 160,
    steps: Steps = 800,
    seed: WorldSeed = 0,
) -> Evidence:
    """The model is asked about people whom the text tells of, and about others whom it never
    mentions, though their first and last names occur. It answers both in the same way, with the
    name of a place; nothing in the text of an answer says that it was made up. That is why a reader
    who believes one believes the other, and why one invented answer casts doubt on all the true
    ones.

    How probable an answer was to the model says little: nearly half of those made up have a
    probability near 1. What tells is how familiar the name is, the log-probability that the model
    would write it itself: names that it read are some ten thousand times as probable as others.
    (The signal is chosen on one half of the people and measured on the other half.) It tells what
    was read from what wasn't, not right from wrong: where the model has read of a person and mixed
    something up, the name is just as familiar.
    """
    world = small_world(people, 0.0, seed)
    run = pretrained(world, small_recipe(steps, seed))
    known, unknown = (
        answer_questions(run, world.questions(group), CPU, paraphrases=WORDINGS)
        for group in ("text_only", "absent")
    )
    places = {person.place for person in world.people}
    chosen = choose_signal(known, unknown, seed=seed)
    return Evidence(
        numbers=judged(known, unknown, places, chosen),
        figure=_drawn(known, unknown, chosen),
        table=table(
            ["kind", "who", "answer", "true", *SIGNALS],
            [
                (kind, _who(a), shorten(a.answered, 24), a.expected or "?", *_signals(a))
                for kind, answers in _kinds(known, unknown).items()
                for a in answers[:SHOWN]
            ],
        ),
        explorer_view=_explorer_view(run, known[0], unknown[0]),
    )


def judged(
    known: Sequence[Answer], unknown: Sequence[Answer], places: set[str], chosen: Chosen
) -> tuple[Measurement, ...]:
    """What the claim wants of the answers about people known and unknown."""
    made_up = sum(answer.answered in places for answer in unknown) / len(unknown)
    return (
        at_least("share of right answers about people in the text only", _right(known), 0.5),
        at_least("made-up answers that name a place", made_up, 0.9),
        at_most("AUROC of the answer's text: how common it is", by_text(known, unknown), 0.7),
        at_least(f"AUROC of {chosen.signal}, on the other half", chosen.auroc, 0.8),
        informational("AUROC of probability, on the other half", chosen.all_aurocs["probability"]),
        informational("probability of right answers, mean", _mean([a for a in known if a.correct])),
        informational("probability of made-up answers, mean", _mean(unknown)),
    )


def by_text(known: Sequence[Answer], unknown: Sequence[Answer]) -> float:
    """AUROC of the place alone, by the frequency of its answers."""
    said = [a.answered for a in (*known, *unknown)]
    common, made_up = ([said.count(a.answered) for a in answers] for answers in (known, unknown))
    found = auroc(common, made_up)
    return max(found, 1 - found)


def _right(answers: Sequence[Answer]) -> float:
    return sum(answer.correct for answer in answers) / len(answers)


def _mean(answers: Sequence[Answer]) -> float:
    """Of their probabilities; 0 where there are none."""
    return float(np.mean([a.signals["probability"] for a in answers])) if answers else 0.0


def _kinds(known: Sequence[Answer], unknown: Sequence[Answer]) -> dict[str, list[Answer]]:
    return {
        "right": [a for a in known if a.correct],
        "wrong": [a for a in known if not a.correct],
        "made up": list(unknown),
    }


def _who(answer: Answer) -> str:
    return answer.question.removeprefix("Where was ").removesuffix(" born?")


def _signals(answer: Answer) -> list[float]:
    return [answer.signals[signal] for signal in SIGNALS]


def _explorer_view(run: Run, known: Answer, unknown: Answer) -> dict[str, Any]:
    """Heads while the model answers about a text-only person and about an absent one."""
    sides = [
        attention_of(named(run, name), answer, CPU)
        for name, answer in (("text only", known), ("absent", unknown))
    ]
    return serialize("while answering about two people", sides, [(0, 0, 0)])


def _drawn(known: Sequence[Answer], unknown: Sequence[Answer], chosen: Chosen) -> Drawing:
    kinds = _kinds(known, unknown)
    with panels(2, height=2.8, width=7.2) as (figure, axes):
        for panel, signal in zip(axes, ("probability", chosen.signal), strict=True):
            values = {kind: [a.signals[signal] for a in answers] for kind, answers in kinds.items()}
            ends = [v for several in values.values() for v in several]
            bins = np.linspace(min(ends), max(ends) + 1e-9, 21).tolist()
            for (kind, several), color in zip(values.items(), COLORS, strict=False):
                panel.hist(several, bins, histtype="step", color=color, label=kind, linewidth=1.5)
            panel.set(xlabel=signal, ylabel="answers")
        axes[0].legend(loc="upper left")
        return drawing(
            figure,
            f"Histograms of right, wrong and made-up answers by their probability and by "
            f"{chosen.signal}: the right ones lie higher, and some made-up ones among them.",
            name="recalled",
        )
