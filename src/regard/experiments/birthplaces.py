"""Effect of pretraining on answers about birthplaces of real people, in three arms.

Stanford CS224N's assignment 5: a text contains a sentence about each person. The model is trained
to answer where some of them were born, and tested on the others, whose birthplaces only the text
states. The arms are trained on the text, without any text, and on the text without the sentences
about the people in the test questions.

Each signal of confidence has two AUROCs: for right against wrong answers, and for people that the
text mentions against absent ones.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from regard.errors import UserError
from regard.evaluation.answers import Answer, answer
from regard.evaluation.evaluate import (
    Evaluation,
    evaluate_questions,
    save_predictions,
    signal_aurocs,
)
from regard.experiments.stages import Stages
from regard.metrics import Interval
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.tasks.examples import (
    Example,
    encode_pairs,
    encode_questions,
    majority_answer,
    read_answered,
    read_questions,
    subject_of,
    subjects,
)
from regard.tasks.rng import generator, shuffled
from regard.text.corpus import Document, read_corpus
from regard.text.template import Template
from regard.text.tokenizer import Tokenizer
from regard.training.checkpoint import Progress
from regard.training.loop import ExecutionOptions
from regard.training.plan import Plan, plan_training
from regard.training.sources.documents import DocumentSource, corpus_tokenizer
from regard.training.sources.questions import QuestionSource
from regard.uncertainty.metrics import risk_at_coverage
from regard.uncertainty.signals import quick_signals

Examples: TypeAlias = Sequence[Example]
COVERAGES = (0.25, 0.5, 0.75, 1.0)
"""Coverages: shares of the most confident answers."""
PRETRAINED = "pretrained"
NOT_PRETRAINED = "not-pretrained"
WITHOUT_THEM = "without-them"
ARMS = {
    PRETRAINED: "trained on the text and on questions",
    NOT_PRETRAINED: "trained on the questions alone",
    WITHOUT_THEM: "trained on the text without the sentences of the people it is asked "
    "about, and on questions",
}


class Data(NamedTuple):
    """The text, and questions for training, for evaluation, and for prediction."""

    corpus: Sequence[Document]
    qa_train: Sequence[Example]
    text_only: Sequence[Example]
    """Questions about people in the text only."""
    names: Sequence[str]
    """Names of these people."""
    unknown: Sequence[Example]
    """Questions without answers."""

    @staticmethod
    def read(folder: Path, recipe: Recipe) -> "Data":
        """Read the four files of a folder.

        Raises:
            UserError: a file is missing or malformed, or its questions don't contain the names of
                people in a common wording.
        """
        if recipe.data.documents != "lines":
            raise UserError("data.documents: this text is read by lines; set data.documents=lines")
        corpus = read_corpus([folder / "wiki.txt"], blank_lines=recipe.data.blank_lines)
        text_only = read_answered(folder / "birth_dev.tsv")
        names = subjects([question.text for question in text_only])
        if not any(subject_of(name) in ("", name) for name in names):
            raise UserError(
                f"{text_only[0].where}: no names are found: ask several questions in one wording, "
                "such as «Where was NAME born?»"
            )
        return Data(
            corpus,
            read_answered(folder / "birth_places_train.tsv"),
            text_only,
            names,
            read_questions(folder / "birth_test_inputs.tsv"),
        )

    def held_out(self, n: int) -> "Data":
        """Return these data with the training questions about `n` people for evaluation.

        They are the people whose names have the smallest sha256, so that the choice depends on
        neither their order nor their answers. The questions about the others are for training.

        Raises:
            UserError: there are too few people, or names aren't found.
        """
        names = _names([question.text for question in self.qa_train])
        if "" in names:
            where = self.qa_train[names.index("")].where
            raise UserError(f"{where}: names nobody; --held-out needs a name in each question")
        people = sorted(set(names), key=lambda name: sha256(name.encode()).digest())
        if not 0 < n < len(people):
            raise UserError(
                f"{self.qa_train[0].where}: can't hold out {n} people; the questions name "
                f"{len(people)} people, and at least one must remain for training"
            )
        chosen, asked = set(people[:n]), list(zip(self.qa_train, names, strict=True))
        return self._replace(
            qa_train=[question for question, name in asked if name not in chosen],
            text_only=[question for question, name in asked if name in chosen],
            names=[name for name in names if name in chosen],
        )

    def sentences(self) -> list[list[str]]:
        """Return the sentences of the text about each person of `text_only`."""
        return [[d.text for d in self.corpus if _says(d.text, name)] for name in self.names]

    def absent(self, seed: int) -> list[Example]:
        """Return questions about people absent from the text.

        Each has the name of a person of `text_only` with the last name of another, so that all
        parts of the names are known, and names are as long as those of mentioned people.
        """
        parts = [name.split() for name in self.names]
        last = shuffled(generator(seed, "absent people"), [words[-1:] for words in parts])
        pairs = zip(parts, last, strict=True)
        names = dict.fromkeys(" ".join([*words[:-1], *other]) for words, other in pairs)
        asked, text = self.text_only[0].text, _joined(self.corpus)
        return [
            Example(text=asked.replace(self.names[0], name), where=f"question about {name}")
            for name in names
            if not _says(text, name)
        ]

    def mentioned_or_absent(self, arm: str, seed: int) -> tuple[Examples, Examples]:
        """Return questions about people that the arm's text mentions, and about absent ones.

        None of them is in QA training.
        """
        if arm == PRETRAINED:
            return self.text_only, self.absent(seed)
        if arm == NOT_PRETRAINED:
            return (), ()
        names = subjects([question.text for question in self.unknown])
        asked, text = zip(self.unknown, names, strict=False), _joined(self.without_them())
        return [question for question, name in asked if _says(text, name)], self.text_only

    def without_them(self) -> list[Document]:
        """Return the text without the sentences that name a person of `text_only`.

        Raises:
            UserError: nothing is left.
        """
        left = [d for d in self.corpus if not any(_says(d.text, name) for name in self.names)]
        if not any(document.text.strip() for document in left):
            raise UserError(
                f"{self.corpus[0].where}: every line names a person of the questions, so no text "
                f"is left without them; add other lines, or leave out the arm {WITHOUT_THEM}"
            )
        return left


def _names(questions: Sequence[str]) -> list[str]:
    """Return the name in each question: all words that differ, if there is one wording."""
    names, capitalized = subjects(questions), [subject_of(text) for text in questions]
    pairs = zip(names, capitalized, strict=False)
    one_wording = names and all(name.startswith(first) for name, first in pairs)
    return names if one_wording else capitalized


def _joined(documents: Sequence[Document]) -> str:
    return "\n".join(document.text for document in documents)


def _says(text: str, what: str) -> bool:
    """Return whether words occur in a text as whole words."""
    return what in text and re.search(rf"(?<!\w){re.escape(what)}(?!\w)", text) is not None


class Mistakes(msgspec.Struct, frozen=True, kw_only=True):
    """Number of wrong answers by kind; each answer counts for the first kind that applies."""

    not_stated: int
    """The text about the person does not contain the right answer."""
    from_their_sentence: int
    """The answer is from the text about the person."""
    of_a_namesake: int
    """The answer is that of QA training for a person with the same first or last name."""
    commonest: int
    """The answer is the most frequent one in QA training."""
    other: int


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy and cost of an arm."""

    arm: str
    seed: int
    questions: int
    correct: int
    accuracy: float
    low: float
    high: float
    """Ends of the 95 % interval."""
    right_or_wrong: dict[str, Interval]
    """AUROC of each signal for right against wrong answers; empty if there are too few."""
    mentioned_or_absent: dict[str, Interval]
    """AUROC of each signal for people that the arm's text mentions against absent ones; empty
    without text."""
    risk: tuple[float, ...]
    """Share of wrong answers at each of `COVERAGES`."""
    mistakes: Mistakes
    parameters: int
    steps: int
    tokens: int
    """Number of positions in training, padding included."""
    operations: int | None
    """Floating-point operations of training; None if they weren't counted."""
    training_seconds: float
    evaluation_seconds: float


class Arm(NamedTuple):
    """A trained model with its answers and score."""

    stages: Sequence[Run]
    """Trained models, in the order of the training stages."""
    evaluation: Evaluation
    mentioned: Sequence[Answer]
    """Answers about people that the arm's text mentions."""
    absent: Sequence[Answer]
    """Answers about people absent from it."""
    score: Score

    @property
    def run(self) -> Run:
        """The model of the last stage, which answers."""
        return self.stages[-1]


def birthplaces(
    data: Data,
    out: Path,
    stages: Stages,
    options: ExecutionOptions,
    arms: Sequence[str] = tuple(ARMS),
) -> dict[str, Arm]:
    """Train and evaluate the arms; runs that `out` already contains are resumed.

    The answers are written beside each model, one line per question: dev.txt and test.txt.

    Raises:
        UserError: `out` holds other runs, or the recipe doesn't fit the data.
        InterruptedTraining: Ctrl-C; the state is saved.
    """
    recipe = stages.pretraining
    tokenizer = corpus_tokenizer(data.corpus, recipe, data.qa_train)
    # Questions that can't be encoded raise an error before any training.
    template, longest = Template(recipe.template, tokenizer), recipe.model.context_length
    encode_pairs(template, data.qa_train, longest)
    asked = [*data.text_only, *data.unknown, *data.absent(recipe.seed)]
    encode_questions(template, asked, longest)
    found = {}
    for arm in arms:
        trained = list(_train(arm, data, out, stages, options, tokenizer))
        found[arm] = _ask(trained, arm, data, options)
    return found


_Trained: TypeAlias = tuple[Run, Progress]


def _train(
    arm: str,
    data: Data,
    out: Path,
    stages: Stages,
    options: ExecutionOptions,
    tokenizer: Tokenizer,
) -> Iterator[_Trained]:
    """Train the stages of an arm; all arms share a tokenizer."""
    if arm == NOT_PRETRAINED:
        questions = QuestionSource(data.qa_train)
        plan = plan_training(questions, stages.questions, out / arm, tokenizer=tokenizer)
        yield plan.run, train_or_resume(plan, options)
        return
    corpus = data.corpus if arm == PRETRAINED else data.without_them()
    mixed = data.qa_train if stages.pretraining.objective.questions > 0 else ()
    source = DocumentSource(corpus, mixed)
    plan = plan_training(source, stages.pretraining, out / arm, tokenizer=tokenizer)
    yield plan.run, train_or_resume(plan, options)
    if not mixed:
        questions = QuestionSource(data.qa_train, "finetuning")
        folder = out / f"{arm}-finetuned"
        finetuned = plan_training(questions, stages.finetuning, folder, plan.run)
        yield finetuned.run, train_or_resume(finetuned, options)


def train_or_resume(plan: Plan, options: ExecutionOptions) -> Progress:
    """Train, or resume the training in the plan's folder."""
    return plan.execute(options, resume=(plan.run.path / "config.toml").exists())


def _ask(stages: Sequence[_Trained], arm: str, data: Data, options: ExecutionOptions) -> Arm:
    """Answer all questions, save the answers, and score those with known answers."""
    runs, progress = [run for run, _ in stages], [progress for _, progress in stages]
    run, started = runs[-1], time.perf_counter()
    evaluation = evaluate_questions(run, data.text_only, options.environment, seed=run.recipe.seed)
    seconds = time.perf_counter() - started
    save_predictions([a.answered for a in evaluation.answers], run.path / "dev.txt")
    few = quick_signals()
    unknown = answer(run, data.unknown, options.environment, signals=few)
    save_predictions([a.answered for a in unknown], run.path / "test.txt")
    mentioned, absent = (
        answer(run, questions, options.environment, signals=few)
        for questions in data.mentioned_or_absent(arm, run.recipe.seed)
    )
    counts = [one.operations for one in progress if one.operations is not None]
    share = evaluation.accuracy
    assert share is not None  # these questions have answers
    right, wrong = ([a for a in evaluation.answers if a.correct is kind] for kind in (True, False))
    score = Score(
        arm=arm,
        seed=run.recipe.seed,
        questions=len(data.text_only),
        correct=len(right),
        accuracy=share.value,
        low=share.low,
        high=share.high,
        right_or_wrong=signal_aurocs(right, wrong),
        mentioned_or_absent=signal_aurocs(mentioned, absent),
        risk=_risk(evaluation.answers),
        mistakes=mistakes(evaluation, data),
        parameters=run.n_parameters,
        steps=sum(p.step for p in progress),
        tokens=sum(p.tokens for p in progress),
        operations=sum(counts) if len(counts) == len(progress) else None,
        training_seconds=round(sum(p.seconds for p in progress), 1),
        evaluation_seconds=round(seconds, 1),
    )
    return Arm(runs, evaluation, mentioned, absent, score)


def _risk(answers: Sequence[Answer]) -> tuple[float, ...]:
    confidence = [one.scores["confidence"] for one in answers]
    correct = [one.correct for one in answers]
    return tuple(risk_at_coverage(confidence, correct, coverage) for coverage in COVERAGES)


def mistakes(evaluation: Evaluation, data: Data) -> Mistakes:
    """Return the kinds of the wrong answers to the questions `data.text_only`."""
    places, commonest = _places_by_name(data.qa_train), majority_answer(data.qa_train)
    kinds: Counter[str] = Counter()
    for one, name, sentences in zip(evaluation.answers, data.names, data.sentences(), strict=True):
        if one.correct:
            continue
        is_kind = {
            "not_stated": not _any_says(sentences, one.expected),
            "from_their_sentence": _any_says(sentences, one.answered),
            "of_a_namesake": any(one.answered in places[part] for part in _first_and_last(name)),
            "commonest": one.answered == commonest,
        }
        kinds[next((kind for kind, holds in is_kind.items() if holds), "other")] += 1
    return Mistakes(**{name: kinds[name] for name in Mistakes.__struct_fields__})


def _any_says(sentences: Sequence[str], what: str | None) -> bool:
    return bool(what) and any(_says(sentence, str(what)) for sentence in sentences)


def _places_by_name(questions: Examples) -> dict[str, set[str]]:
    """Return first or last name → answers about all people with it."""
    found: dict[str, set[str]] = defaultdict(set)
    for question, name in zip(questions, _names([q.text for q in questions]), strict=True):
        for part in _first_and_last(name):
            found[part].add(str(question.answer))
    return found


def _first_and_last(name: str) -> set[str]:
    return {name.split()[0], name.split()[-1]} if name else set()
