"""Effect of the wording of a text, and of the time of the questions, on recall."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from regard.metrics import Interval
from regard.studies.figure import bar_chart
from regard.studies.finding import Measurements, at_least
from regard.studies.knowledge import fictional
from regard.studies.knowledge.fictional import Steps
from regard.studies.study import EvidenceParts, Seed, study

TEXTS: dict[str, dict[str, Any]] = {
    "one biography": {"augment": False, "order": "place-last"},
    "five wordings": {"order": "place-last"},
    "five, permuted": {"order": "permuted"},
}
"""Options of the world for each text; all are about the same people and facts."""
TIMES = {"questions mixed in": fictional.pretrained, "questions afterwards": fictional.text_first}
"""Trainings with questions during and after pretraining."""
Scores = Mapping[str, Interval]
"""Accuracy on people in the text only, by text."""


@study(trains=True)
def augmentation(
    people: Annotated[int, Meta(ge=80, le=600)] = 300,
    steps: Steps = 1600,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How must a text be written, so that a model can answer from it?

    In several wordings, and mixed with questions. If the questions come afterwards, it helps to
    vary the order of the facts, too (seed 0). From one biography per person in a fixed order, the
    model recalls fewer facts than from five with permuted facts. If the questions come after the
    text, this gain is smaller and depends on the seed.

    $$ P(\text{place} \mid \text{question}) \ll P(\text{place} \mid \text{biography so far}) $$

    This repeats the experiment of Allen-Zhu and Li 2023 (arXiv:2309.14316) with far smaller models.
    There, on 100,000 people, 9.7 % of answers are right after one biography each and finetuning on
    questions about other people. With augmented biographies it is 96.6 %, and 86.6 % without
    augmentation if questions are mixed into pretraining.

    In the fixed order the place of birth comes last, and a model may learn to predict it from
    everything before it; the name alone, as in a question, is then not enough. Each model is
    trained for the same number of steps, so a single biography is read five times as often as each
    of five. With questions afterwards, the gain by five permuted biographies is smaller than with
    questions mixed in, at each of five seeds (0 to 4); at one it is only 0.05.

    Figure. Accuracy on people who are not in QA training, by text and by time of the questions,
    with 95 % intervals.

    Args:
        people: number of people in the text
    """
    recipe = fictional.small_recipe(steps, seed)
    worlds = {
        text: fictional.small_world(people, 0.0, seed, **options) for text, options in TEXTS.items()
    }
    found = {
        when: {
            text: fictional.right_answers(train(world, recipe), world.questions("text_only"))
            for text, world in worlds.items()
        }
        for when, train in TIMES.items()
    }
    yield from judged(*found.values())
    yield bar_chart(found, y="accuracy", y_limits=(0, 1.05))


def judged(mixed: Scores, afterwards: Scores) -> Measurements:
    """Yield the measurements that the claim depends on."""
    one, *_, permuted = TEXTS
    for when, scores in {"mixed": mixed, "afterwards": afterwards}.items():
        gain = scores[permuted].value - scores[one].value
        yield at_least(f"{when}: permuted minus one biography", gain, 0)
    gain = mixed[one].value - afterwards[one].value
    yield at_least("one biography: mixed minus afterwards", gain, 0)
