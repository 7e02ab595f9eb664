"""Models of a small fictional world, shared by the studies of knowledge.

In the world of `regard.tasks.world`, the true place of birth of each person is known, and whether
the text states it. Trained models are cached, so that studies with the same settings share them.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from jaxtyping import Float
from msgspec import Meta
from msgspec.structs import replace
from torch import Tensor

from regard.config import override
from regard.environment import ExecutionEnvironment
from regard.evaluation.answers import Answer, answer
from regard.experiments.stages import text_only
from regard.metrics import Interval, accuracy
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.studies.model_cache import cached_run
from regard.tasks.examples import Example, texts_of
from regard.tasks.world import QUESTIONS, Person, World, WorldConfig, make_world
from regard.text.tokenizer import train_tokenizer
from regard.training.plan import plan_training
from regard.training.sources.base import Source
from regard.training.sources.documents import DocumentSource
from regard.training.sources.questions import QuestionSource
from regard.uncertainty.signals import quick_signals

Correlation = Annotated[
    float, Meta(ge=0, le=1, description="probability of birth at the home of the last name")
]
People = Annotated[int, Meta(ge=80, le=600, description="number of people in the text")]
Steps = Annotated[int, Meta(ge=1, le=4000, description="pretraining steps")]
"""Parameters shared by studies."""

PLACES, SKEW, ABSENT = 20, 1.0, 200
"""Number of places, exponent of their Zipf law, and number of people absent from the text."""

_SMALLER = (
    *("model.context_length=48", "model.d_model=64", "data.validation=0"),
    *("training.batch=32", "objective.question_batch=64", "training.lr=2e-3"),
)
"""Settings for a smaller model than that of the demo."""

CPU = ExecutionEnvironment.choose("cpu")


def small_world(people: int, correlation: float, seed: int, **text: Any) -> World:
    """Return a world with half of its people in QA training, the others in the text only.

    `text` are options of the biographies, fields of `tasks.world.WorldConfig`.
    """
    shared: dict[str, Any] = {"absent": ABSENT, "places": PLACES, "skew": SKEW, **text}
    return make_world(WorldConfig(people=people, correlation=correlation, seed=seed, **shared))


def small_recipe(steps: int, seed: int) -> Recipe:
    """Return the demo's recipe with a smaller model, which reads no clozes."""
    settings = [*_SMALLER, f"training.steps={steps}", f"seed={seed}"]
    without_clozes = replace(RECIPES["demo"], objective=RECIPES["world"].objective)
    return override(without_clozes, settings)


def trained(source: Source, recipe: Recipe, vocabulary: Sequence[str]) -> Run:
    """Return a model trained on a source; its tokenizer is trained on the texts `vocabulary`."""
    tokenizer = train_tokenizer(recipe.tokenizer, vocabulary)
    return cached_run(plan_training(source, recipe, "unused", tokenizer=tokenizer))


def pretrained(world: World, recipe: Recipe, documents: Sequence[str] = ()) -> Run:
    """Return a model trained on a text, by default the world's, and on the training questions."""
    source = DocumentSource(documents or world.documents, qa_train(world), index=False)
    return trained(source, recipe, _texts(world))


def without_them(world: World, recipe: Recipe) -> Run:
    """Return the same model without the biographies of the people in the text only."""
    left = tuple(f"{person.name}. " for person in world.group("text_only"))
    return pretrained(world, recipe, [d for d in world.documents if not d.startswith(left)])


def text_first(world: World, recipe: Recipe) -> Run:
    """Return a model trained on as much text as in `pretrained`, and then on the questions."""
    return _then_questions(world, text_only(recipe, recipe.training.steps or 0))


def corrupted_first(world: World, recipe: Recipe) -> Run:
    """Return a model pretrained on the text by span corruption, and then on the questions."""
    settings = ["objective.next_token=0", "objective.questions=0", "objective.span_corruption=1"]
    return _then_questions(world, override(recipe, settings))


def _then_questions(world: World, recipe: Recipe) -> Run:
    """Return a model trained on the text by a recipe, and then on the questions."""
    source = DocumentSource(world.documents, index=False)
    return finetuned(trained(source, recipe, _texts(world)), qa_train(world))


def from_scratch(world: World, recipe: Recipe, questions: Sequence[Example] = ()) -> Run:
    """Return a model trained on some questions alone, by default all training questions."""
    recipe = replace(recipe, training=RECIPES["demo-questions"].training)
    recipe = override(recipe, ["training.epochs=24", "training.lr=1e-3"])
    return trained(QuestionSource(questions or qa_train(world)), recipe, _texts(world))


def _texts(world: World) -> list[str]:
    """Return the text of a world, and that of its training questions."""
    return [*world.documents, *texts_of(qa_train(world))]


def finetuned(parent: Run, questions: Sequence[Example]) -> Run:
    """Return a model finetuned on questions."""
    source, settings = QuestionSource(questions, "finetuning"), ["training.epochs=8"]
    return cached_run(plan_training(source, None, "unused", parent, settings=settings))


def qa_train(world: World) -> list[Example]:
    """Return the training questions in all wordings."""
    return world.questions("qa_train", QUESTIONS)


def answers(run: Run, questions: Sequence[Example], wordings: Sequence[str] = ()) -> list[Answer]:
    """Return a model's answers; the signal of agreement is that of answers to other wordings."""
    return answer(run, questions, CPU, signals=quick_signals(wordings))


def right_answers(run: Run, questions: Sequence[Example]) -> Interval:
    """Return the share of questions that a model answers correctly."""
    return accuracy([one.correct for one in answers(run, questions)])


def mentioned(world: World) -> list[Person]:
    """Return the people in the text."""
    return [person for person in world.people if person.group != "absent"]


def homes(world: World) -> dict[str, str]:
    """Return each person's home: the commonest birthplace of mentioned people of the last name."""
    families: dict[str, list[Person]] = {}
    for person in mentioned(world):
        families.setdefault(person.name.split()[-1], []).append(person)
    places = {name: commonest(family)[0] for name, family in families.items()}
    return {person.name: places[person.name.split()[-1]] for person in world.people}


def mentioned_places(world: World) -> list[str]:
    """Return the places in the text, sorted; others aren't in the vocabulary."""
    return sorted({person.place for person in mentioned(world)})


def commonest(people: Sequence[Person]) -> tuple[str, float]:
    """Return the most frequent birthplace of some people, the first by name, and its share."""
    counts = Counter(person.place for person in people)
    place = min(counts, key=lambda place: (-counts[place], place))
    return place, counts[place] / len(people)


@torch.inference_mode()
def place_probabilities(run: Run, world: World) -> Float[Tensor, "people places"]:
    """Return, for absent people, the probability of each mentioned place if the answer is one."""
    rows = [
        run.template.open_answer(run.template.prompt.around(run.tokenizer.encode(question.text)))
        for question in world.questions("absent")
    ]
    columns = [run.tokenizer.encode(place)[0] for place in mentioned_places(world)]  # single tokens
    logits: Tensor = run.language_model(torch.tensor(rows))[:, -1, columns]
    return logits.double().softmax(-1)
