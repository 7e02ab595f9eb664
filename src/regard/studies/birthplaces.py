"""Does pretraining matter? Where real people were born, asked of a model in three arms.

Stanford CS224N's assignment 5: a text holds a sentence about each person; for some of them the
model learns to answer where they were born, about others it is asked. It can know that from their
sentences alone. So it is trained on the text, without any text, and on the text without the
sentences of those whom it will be asked about.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from regard.evaluation.answers import answer_questions
from regard.evaluation.evaluate import Evaluation, evaluate, save_predictions
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.tasks.questions import (
    Question,
    majority_answer,
    read_answered,
    read_questions,
    subjects,
)
from regard.text.corpus import Document, read_corpus
from regard.training.loop import Settings
from regard.training.stages import (
    Plan,
    corpus_tokenizer,
    plan_finetuning,
    plan_pretraining,
    plan_questions,
)

PRETRAINED = "pretrained"
NOT_PRETRAINED = "not-pretrained"
WITHOUT_THEM = "without-them"
ARMS = {
    PRETRAINED: "trained on the text and on questions",
    NOT_PRETRAINED: "trained on the questions alone",
    WITHOUT_THEM: "trained on the text without the sentences of the people it is asked "
    "about, and on questions",
}


@dataclass(frozen=True)
class Data:
    """The text, and the questions to train on, to measure by, and to predict."""

    corpus: Sequence[Document]
    asked: Sequence[Question]
    told: Sequence[Question]
    """About people of whom only the text tells."""
    unknown: Sequence[Question]
    """Without answers."""

    @staticmethod
    def read(folder: Path, recipe: Recipe) -> "Data":
        """The four files of a folder.

        Raises:
            UserError: a file is missing or malformed.
        """
        return Data(
            read_corpus([folder / "wiki.txt"], blank_lines=recipe.data.blank_lines),
            read_answered(folder / "birth_places_train.tsv"),
            read_answered(folder / "birth_dev.tsv"),
            read_questions(folder / "birth_test_inputs.tsv"),
        )

    def sentences(self) -> list[list[str]]:
        """What the text says of each person of `told`."""
        return [
            [document.text for document in self.corpus if name in document.text]
            for name in subjects([question.text for question in self.told])
        ]

    def without_them(self) -> list[Document]:
        """The text without the sentences that name a person of `told`."""
        names = subjects([question.text for question in self.told])
        return [d for d in self.corpus if not any(name in d.text for name in names)]


class Mistakes(msgspec.Struct, frozen=True, kw_only=True):
    """What wrong answers are, in numbers of answers."""

    from_their_sentence: int
    """Something else that the text says of the person."""
    commonest: int
    """The commonest answer of the questions that were trained on."""
    other: int


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """How well an arm answers."""

    arm: str
    seed: int
    questions: int
    correct: int
    accuracy: float
    low: float
    high: float
    """Ends of the 95 % interval."""
    auroc: dict[str, float]
    """How well each signal tells right from wrong; empty where there are too few of a kind."""
    mistakes: Mistakes
    parameters: int
    steps: int
    tokens: int
    """Positions trained on, padding included."""
    training_seconds: float
    evaluation_seconds: float


@dataclass(frozen=True)
class Arm:
    """A trained model, what it answers, and how well."""

    run: Run
    evaluation: Evaluation
    score: Score


def birthplaces(
    data: Data, out: Path, recipe: Recipe, settings: Settings, arms: Sequence[str] = tuple(ARMS)
) -> dict[str, Arm]:
    """Train and ask the arms. What `out` holds of them already is kept and gone on with.

    The answers are written beside each model, a line for every question: dev.txt and test.txt.

    Raises:
        UserError: `out` holds other runs, or the recipe doesn't fit the data.
        InterruptedTraining: Ctrl-C; the state is saved.
    """
    return {
        arm: _ask(_train(arm, data, out, recipe, settings), arm, data, settings) for arm in arms
    }


@dataclass(frozen=True)
class _Trained:
    run: Run
    steps: int
    tokens: int
    seconds: float


def _train(arm: str, data: Data, out: Path, recipe: Recipe, settings: Settings) -> _Trained:
    """All stages of an arm."""
    mixed = data.asked if recipe.objective.questions > 0 else ()
    tokenizer = corpus_tokenizer(data.corpus, recipe, mixed)  # of the whole text, for all arms
    if arm == NOT_PRETRAINED:
        plan = plan_questions(data.asked, out / arm, recipe, tokenizer=tokenizer)
        return _execute(plan, settings)
    corpus = data.corpus if arm == PRETRAINED else data.without_them()
    plan = plan_pretraining(corpus, out / arm, recipe, questions=mixed, tokenizer=tokenizer)
    pretrained = _execute(plan, settings)
    if mixed:
        return pretrained
    plan = plan_finetuning(pretrained.run, data.asked, out / f"{arm}-finetuned", recipe)
    return _execute(plan, settings, after=pretrained)


def _execute(plan: Plan, settings: Settings, after: _Trained | None = None) -> _Trained:
    """Train, or go on with training; count what went before."""
    progress = plan.execute(settings, resume=(plan.run.path / "config.toml").exists())
    before = (after.steps, after.tokens, after.seconds) if after else (0, 0, 0.0)
    return _Trained(
        plan.run,
        steps=before[0] + progress.step,
        tokens=before[1] + progress.tokens,
        seconds=before[2] + progress.seconds,
    )


def _ask(trained: _Trained, arm: str, data: Data, settings: Settings) -> Arm:
    """Answer all questions, keep the answers, and score those that can be."""
    run, started = trained.run, time.perf_counter()
    evaluation = evaluate(run, data.told, settings.machine, seed=run.recipe.seed)
    seconds = time.perf_counter() - started
    save_predictions(evaluation.answers, run.path / "dev.txt")
    unknown = answer_questions(run, data.unknown, settings.machine)
    save_predictions(unknown, run.path / "test.txt")
    share = evaluation.accuracy
    assert share is not None  # these questions have answers
    score = Score(
        arm=arm,
        seed=run.recipe.seed,
        questions=len(data.told),
        correct=sum(answer.correct for answer in evaluation.answers),
        accuracy=share.value,
        low=share.low,
        high=share.high,
        auroc=evaluation.confidence.all_aurocs if evaluation.confidence else {},
        mistakes=mistakes(evaluation, data),
        parameters=run.n_parameters,
        steps=trained.steps,
        tokens=trained.tokens,
        training_seconds=round(trained.seconds, 1),
        evaluation_seconds=round(seconds, 1),
    )
    return Arm(run, evaluation, score)


def mistakes(evaluation: Evaluation, data: Data) -> Mistakes:
    """What the wrong answers to the questions `data.told` are."""
    commonest = majority_answer(data.asked)
    from_their_sentence = at_the_commonest = 0
    for answer, sentences in zip(evaluation.answers, data.sentences(), strict=True):
        if answer.correct:
            continue
        if answer.answered and any(answer.answered in sentence for sentence in sentences):
            from_their_sentence += 1
        elif answer.answered == commonest:
            at_the_commonest += 1
    wrong = sum(not answer.correct for answer in evaluation.answers)
    return Mistakes(
        from_their_sentence=from_their_sentence,
        commonest=at_the_commonest,
        other=wrong - from_their_sentence - at_the_commonest,
    )
