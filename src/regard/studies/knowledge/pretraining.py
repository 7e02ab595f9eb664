"""Does pretraining matter?"""

import math
from collections.abc import Mapping

from regard.drawing import COLORS, INK, panels
from regard.evaluation.answers import answer_questions
from regard.metrics import Interval, accuracy
from regard.studies.finding import Drawing, Evidence, Measurement, at_least, at_most, drawing, table
from regard.studies.knowledge.fictional import (
    CPU,
    Correlation,
    People,
    Steps,
    WorldSeed,
    commonest,
    not_pretrained,
    pretrained,
    small_recipe,
    small_world,
    without_them,
)
from regard.studies.study import study

PRETRAINED = "pretrained"
NOT_PRETRAINED = "not pretrained"
WITHOUT_THEM = "text without them"
ARMS = {
    PRETRAINED: "the text, and questions about others",
    NOT_PRETRAINED: "questions about others",
    WITHOUT_THEM: "the text about others, and questions about them",
}
_TRAINED_ON = {
    PRETRAINED: pretrained,
    NOT_PRETRAINED: not_pretrained,
    WITHOUT_THEM: without_them,
}


@study(
    asked=["practical-4 3.d", "practical-4 3.f", "practical-4 4.a"],
    question="Why can a model answer questions after pretraining, but not without?",
    claim="Pretraining provides the sentences about the people in the questions: without "
    "text, or with the same text about other people, a model is no better than a guess.",
    formula=r"\text{accuracy without the facts} \le \max_y P(y)",
    trains=True,
)
def pretraining(
    people: People = 160,
    correlation: Correlation = 0.0,
    steps: Steps = 800,
    seed: WorldSeed = 0,
) -> Evidence:
    """Three models answer where people were born about whom they never were asked. All learned from
    questions about other people what an answer looks like. One has also read a text about all of
    them, one has read none, and one has read the text without the sentences about those whom it is
    now asked about.

    Knowing the form of an answer is worth nothing without the fact: both of the latter can only
    guess, and the best guess is the commonest place. With a correlation above 0, last names tell
    something about places; then even a model without text beats that guess, for it has learned the
    names of other people.

    This is a fictional world, in which all truth is known. On the sentences about real people that
    the course uses, `regard birthplaces` trains the same three (docs/birthplaces.md): 71.8, 1.0
    and 4.2 % of the answers are right.
    """
    world, recipe = small_world(people, correlation, seed), small_recipe(steps, seed)
    questions = world.questions("text_only")
    scores = {
        arm: accuracy([a.correct for a in answer_questions(train(world, recipe), questions, CPU)])
        for arm, train in _TRAINED_ON.items()
    }
    place, share = commonest(world.group("text_only"))
    return Evidence(
        numbers=judged(scores, share, len(questions)),
        figure=_drawn(scores, place, share),
        table=table(
            ["model", "trained on", "right answers", "95 % interval"],
            [
                (arm, ARMS[arm], f"{score.value:.1%}", f"{score.low:.1%} to {score.high:.1%}")
                for arm, score in scores.items()
            ],
        ),
    )


def judged(scores: Mapping[str, Interval], guess: float, n: int) -> tuple[Measurement, ...]:
    """What the claim wants of n answers, where the best guess is right with this share."""
    most = guess + 3 * math.sqrt(guess * (1 - guess) / n)
    return (
        at_least(PRETRAINED, scores[PRETRAINED].value, 2 * guess),
        at_most(NOT_PRETRAINED, scores[NOT_PRETRAINED].value, most),
        at_most(WITHOUT_THEM, scores[WITHOUT_THEM].value, most),
    )


def _drawn(scores: Mapping[str, Interval], place: str, share: float) -> Drawing:
    values = [score.value for score in scores.values()]
    errors = [
        [score.value - score.low for score in scores.values()],
        [score.high - score.value for score in scores.values()],
    ]
    with panels(height=2.8) as (figure, (axes,)):
        axes.bar(list(scores), values, yerr=errors, width=0.5, ecolor=INK, color=COLORS[:3])
        axes.axhline(share, linestyle=":", color=INK, linewidth=1)
        axes.text(2.3, share, f"always {place}", ha="right", va="bottom", fontsize=9)
        axes.set(ylabel="right answers", ylim=(0, 1.05))
        shown = ", ".join(f"{arm} {score.value:.0%}" for arm, score in scores.items())
        return drawing(
            figure,
            f"Bars of the share of right answers: {shown}. Dotted: to say {place} always.",
            name="pretraining",
        )
