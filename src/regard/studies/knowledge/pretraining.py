"""Accuracy of question answering with and without pretraining."""

from collections.abc import Mapping

from regard.metrics import Interval
from regard.studies.figure import Line, bar_chart, figure
from regard.studies.finding import Measurements, at_least, at_most
from regard.studies.knowledge import fictional
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import share_error

PRETRAINED = "pretrained"
NOT_PRETRAINED = "not pretrained"
WITHOUT_THEM = "text without these people"
SPAN_CORRUPTION = "span corruption, then questions"
ARMS = {
    PRETRAINED: fictional.pretrained,
    NOT_PRETRAINED: fictional.not_pretrained,
    WITHOUT_THEM: fictional.without_them,
    SPAN_CORRUPTION: fictional.corrupted_first,
}


@study(trains=True)
def pretraining(
    people: fictional.People = 160,
    correlation: fictional.Correlation = 0.0,
    steps: fictional.Steps = 800,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Why can a model answer questions after pretraining, but not without?

    The facts come from pretraining: without text, or with the same text about other people, a model
    is no better than a guess.

    $$ \text{accuracy without the facts} \le \max_y P(y) $$

    Four models answer questions about the birthplaces of people who are not in QA training. All of
    them learn the form of an answer from questions about other people. The first is also trained on
    a text about everybody, the second on no text, and the third on the text without the sentences
    about the people in the test questions. The fourth is pretrained on the text by span corruption,
    with words as tokens, and then finetuned on the questions.

    The world is fictional, so that every fact is known. With a correlation above 0, even a model
    without text can beat the most frequent place. `regard birthplaces` trains the first three
    models on the course's sentences (docs/birthplaces.md).

    Figure. Accuracy of each model on people in the text only, with 95 % intervals. Dotted: always
    answering {place}.
    """
    world = fictional.small_world(people, correlation, seed)
    recipe = fictional.small_recipe(steps, seed)
    questions = world.questions("text_only")
    scores = {
        arm: fictional.right_answers(train(world, recipe), questions) for arm, train in ARMS.items()
    }
    place, share = fictional.commonest(world.group("text_only"))
    yield from judged(scores, share, len(questions))
    guess = Line(y=share, label=f"always {place}")
    yield figure(bar_chart({"": scores}, guess, y="accuracy", y_limits=(0, 1.05)), place=place)


def judged(scores: Mapping[str, Interval], guess: float, n: int) -> Measurements:
    """Yield the measurements of n answers, where the best guess has the accuracy `guess`."""
    most = guess + 3 * share_error(guess, n)
    yield at_least(PRETRAINED, scores[PRETRAINED].value, 2 * guess)
    yield at_most(NOT_PRETRAINED, scores[NOT_PRETRAINED].value, most)
    yield at_most(WITHOUT_THEM, scores[WITHOUT_THEM].value, most)
    yield at_least(SPAN_CORRUPTION, scores[SPAN_CORRUPTION].value, most)
