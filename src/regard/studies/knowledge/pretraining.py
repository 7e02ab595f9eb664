"""Does pretraining matter?"""

import math
from collections.abc import Iterator, Mapping

from regard.metrics import Interval
from regard.studies.figure import Line, bar_chart
from regard.studies.finding import EvidenceParts, Measurement, at_least, at_most
from regard.studies.knowledge.fictional import (
    Correlation,
    People,
    Steps,
    commonest,
    not_pretrained,
    pretrained,
    right_answers,
    small_recipe,
    small_world,
    without_them,
)
from regard.studies.study import Seed, study

PRETRAINED = "pretrained"
NOT_PRETRAINED = "not pretrained"
WITHOUT_THEM = "text without them"
ARMS = {PRETRAINED: pretrained, NOT_PRETRAINED: not_pretrained, WITHOUT_THEM: without_them}


@study(trains=True)
def pretraining(
    people: People = 160, correlation: Correlation = 0.0, steps: Steps = 800, seed: Seed = 0
) -> EvidenceParts:
    r"""Why can a model answer questions after pretraining, but not without?

    Pretraining provides the sentences about the people in the questions: without text, or with the
    same text about other people, a model is no better than a guess.

    $$ \text{accuracy without the facts} \le \max_y P(y) $$

    Three models are asked where people were born who are in no training question. All of them
    learned the form of an answer from questions about other people. The first was also trained on a
    text about everybody, the second on no text, and the third on the text without the sentences
    about the people whom it is now asked about.

    The form of an answer is worth nothing without the fact: the latter two can only guess, and the
    best guess is the commonest place. With a correlation above 0, last names are informative; then
    even a model without text can beat that guess, for it has learned the names of other people.

    This is a fictional world, in which every fact is known. `regard birthplaces` trains the same
    three models on the course's sentences about real people (docs/birthplaces.md).

    Figure. Right answers of each model about people in the text only, with 95 % intervals. Dotted:
    always answering {place}.
    """
    world, recipe = small_world(people, correlation, seed), small_recipe(steps, seed)
    questions = world.questions("text_only")
    scores = {arm: right_answers(train(world, recipe), questions) for arm, train in ARMS.items()}
    place, share = commonest(world.group("text_only"))
    yield from judged(scores, share, len(questions))
    yield bar_chart(
        {"": scores},
        Line(y=share, label=f"always {place}"),
        y="right answers",
        y_limits=(0, 1.05),
        values={"place": place},
    )


def judged(scores: Mapping[str, Interval], guess: float, n: int) -> Iterator[Measurement]:
    """Yield the measurements of n answers, where the best guess is right with this share."""
    most = guess + 3 * math.sqrt(guess * (1 - guess) / n)
    yield at_least(PRETRAINED, scores[PRETRAINED].value, 2 * guess)
    yield at_most(NOT_PRETRAINED, scores[NOT_PRETRAINED].value, most)
    yield at_most(WITHOUT_THEM, scores[WITHOUT_THEM].value, most)
