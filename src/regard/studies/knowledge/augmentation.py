"""Ways to write a text, and times to ask: which facts can be extracted?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from regard.evaluation.evaluate import answer_questions
from regard.metrics import Interval, accuracy
from regard.studies.figure import bar_chart
from regard.studies.finding import EvidenceParts, Measurement, at_least
from regard.studies.knowledge.fictional import (
    CPU,
    Steps,
    pretrained,
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


@dataclass(frozen=True)
class Scores:
    """Right answers about people in the text only."""

    together: Interval
    """Text and questions are mixed in training."""
    afterwards: Interval
    """The questions come after the text."""


@study(trains=True)
def augmentation(
    people: Annotated[int, Meta(ge=80, le=600, description="people that the text mentions")] = 300,
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
    """
    recipe = small_recipe(steps, seed)
    found = {}
    for text, options in TEXTS.items():
        world = small_world(people, 0.0, seed, **options)
        questions = world.questions("text_only")
        together, afterwards = (
            accuracy([a.correct for a in answer_questions(train(world, recipe), questions, CPU)])
            for train in (pretrained, text_first)
        )
        found[text] = Scores(together=together, afterwards=afterwards)
    yield from judged(found)
    yield bar_chart(
        {
            "questions mixed in": {text: one.together for text, one in found.items()},
            "questions afterwards": {text: one.afterwards for text, one in found.items()},
        },
        y="right answers",
        y_limits=(0, 1.05),
    )


def judged(found: Mapping[str, Scores]) -> Iterator[Measurement]:
    """Yield the measurements that the claim depends on."""
    one, *_, permuted = found.values()
    yield at_least(
        "mixed: permuted, beyond one biography", permuted.together.value - one.together.value, 0
    )
    yield at_least(
        "afterwards: permuted, beyond one biography",
        permuted.afterwards.value - one.afterwards.value,
        0,
    )
    yield at_least(
        "one biography: mixed, beyond afterwards", one.together.value - one.afterwards.value, 0
    )
