"""Ways to write a text, and times to ask: which facts can be extracted?"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta

from regard.metrics import Interval
from regard.studies.figure import bar_chart
from regard.studies.finding import EvidenceParts, Measurement, at_least
from regard.studies.knowledge.fictional import (
    Steps,
    pretrained,
    right_answers,
    small_recipe,
    small_world,
    text_first,
)
from regard.studies.study import Seed, study

TEXTS: dict[str, dict[str, Any]] = {
    "one biography": {"augment": False, "order": "place-last"},
    "five wordings": {"order": "place-last"},
    "five, permuted": {"order": "permuted"},
}
"""Options of the world for each text; all are about the same people and facts."""
TIMES = {"questions mixed in": pretrained, "questions afterwards": text_first}
"""Trainings on text and questions."""
Scores = Mapping[str, Interval]
"""Right answers about people in the text only, by text."""


@study(trains=True)
def augmentation(
    people: Annotated[int, Meta(ge=80, le=600)] = 300,
    steps: Steps = 1600,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How must a text be written, so that a model can answer from it?

    In several ways, and mixed with questions. From one biography per person in a fixed order, few
    facts can be recalled; several wordings with permuted facts make most of them available. If the
    questions come after the text, the effect is smaller and depends on the seed.

    $$ P(\text{place} \mid \text{question}) \ll P(\text{place} \mid \text{biography so far}) $$

    The experiment of Allen-Zhu and Li 2023 (arXiv:2309.14316), with far smaller models. There, on
    100 000 people, 9.7 % of answers are right after one biography each and finetuning on questions
    about other people, 96.6 % if the biographies are augmented, and 86.6 % without augmentation if
    questions are mixed into pretraining.

    Of one biography, a model may learn the last fact from all that stands before it: the name
    alone, as in a question, is then not enough. If the facts come in any order, each of them has to
    be predicted from the name. All texts are about the same people and facts, and the place of
    birth is the last of the facts in a fixed order. Each model is trained for as many steps: the
    one biography is read five times as often as each of five.

    These models are small, and read little. With questions mixed in, the effect is large for all
    seeds. With questions afterwards, fewer facts can be retrieved than in the larger models, and
    the effects have the published direction at four of five seeds; at the fifth, neither is seen.

    Figure. Right answers about people in no training question, by the way in which the text is
    written and the time of the questions, with 95 % intervals.

    Args:
        people: people that the text mentions
    """
    recipe = small_recipe(steps, seed)
    worlds = {text: small_world(people, 0.0, seed, **options) for text, options in TEXTS.items()}
    found = {
        when: {
            text: right_answers(train(world, recipe), world.questions("text_only"))
            for text, world in worlds.items()
        }
        for when, train in TIMES.items()
    }
    yield from judged(*found.values())
    yield bar_chart(found, y="right answers", y_limits=(0, 1.05))


def judged(mixed: Scores, afterwards: Scores) -> Iterator[Measurement]:
    """Yield the measurements that the claim depends on."""
    one, *_, permuted = TEXTS
    for when, scores in {"mixed": mixed, "afterwards": afterwards}.items():
        gain = scores[permuted].value - scores[one].value
        yield at_least(f"{when}: permuted, beyond one biography", gain, 0)
    gain = mixed[one].value - afterwards[one].value
    yield at_least("one biography: mixed, beyond afterwards", gain, 0)
