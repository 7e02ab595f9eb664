"""Recalled or invented answers: pretraining on text, questions, and signals of confidence.

Stanford CS224N's assignment 5 with known ground truth: a fictional world replaces Wikipedia. Some
people are in QA training, some in the text only, and some are absent. A model that recalls facts
from its text answers right about people in the text only. Its answers about absent people are
invented, and the experiment measures how well signals separate the two.
"""

import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from math import isfinite
from pathlib import Path
from threading import Event
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from msgspec.structs import replace

from regard.corpus.evidence import Verdict, verdict
from regard.device import peak_memory_mb
from regard.environment import ExecutionEnvironment
from regard.errors import UserError
from regard.evaluation.answers import Answer, answer
from regard.evaluation.evaluate import Chosen, baseline_accuracy, choose_signal
from regard.experiments.stages import Stages, text_only
from regard.metrics import Interval, accuracy
from regard.runs.run import Run
from regard.tasks.examples import majority_answer, read_answered
from regard.tasks.world import QUESTIONS, Group, Person, World, WorldConfig, make_world, save_world
from regard.text.corpus import read_corpus
from regard.training.loggers import Logger, Record
from regard.training.loop import ExecutionOptions, InterruptedTraining
from regard.training.plan import Plan, plan_training
from regard.training.sources.documents import DocumentSource
from regard.training.sources.questions import QuestionSource
from regard.uncertainty.abstention import Guarantee, calibrate
from regard.uncertainty.calibration import signal_matrix
from regard.uncertainty.signals import quick_signals

T = TypeVar("T")
Arms: TypeAlias = dict[str, Run]
PRETRAINED = "text and questions together"
FINETUNED = "text first, questions afterwards"
NOT_PRETRAINED = "questions only, no pretraining"
UNTRAINED = "untrained"
MAJORITY = "always the commonest place"
WORDINGS = tuple(wording.replace("{name}", "{}") for wording in QUESTIONS[1:])
"""Other wordings of the question, used to measure the agreement of answers."""
MAX_ERROR = 0.1
"""Maximum share of wrong answers for which abstention is calibrated."""


STATED = 180.0
"""Upper end of the demo's duration in the README, in seconds."""
FIRST_STEPS = 40
"""Number of steps after which the duration is estimated."""
WHOLE = {True: 1.2, False: 2.2}
"""Duration of the demo relative to its first training; True: the others train in parallel."""


class ExpectedTime(Logger):
    """Print the expected duration of the demo after its first steps, if longer than stated."""

    def __init__(self, environment: ExecutionEnvironment) -> None:
        self._started, self._printed = time.perf_counter(), False
        self._whole = WHOLE[_trains_side_by_side(environment)]

    def log(self, record: Record) -> None:
        if self._printed or record["step"] < FIRST_STEPS:
            return
        self._printed = True
        passed = time.perf_counter() - self._started
        seconds = self._whole * (passed + record["seconds_left"])
        if seconds > STATED:
            line = f"expect about {seconds / 60:.1f} minutes on this computer, not 1 to 3"
            print(line, file=sys.stderr, flush=True)


class Abstention(NamedTuple):
    """A threshold of confidence, and its effect on questions that weren't used for calibration."""

    guarantee: Guarantee
    answers: list[Answer]
    """Answers to the other half of the questions, with calibrated confidence."""


class Recall(NamedTuple):
    """Results of the experiment."""

    world: World
    arms: Arms
    """The compared models."""
    accuracies: dict[str, Interval]
    """Accuracy of each model, and of the most frequent place, on people in the text only."""
    text_only: list[Answer]
    """Answers of the pretrained model about people in the text only."""
    absent: list[Answer]
    """Answers of the pretrained model about absent people."""
    chosen: Chosen
    """The signal that best separates `text_only` from `absent`."""
    verdicts: Mapping[Group, Mapping[str, int]]
    """Number of answers by group and verdict, most frequent first."""
    abstention: Abstention
    """Abstention on questions about both groups of people."""
    seconds: float
    peak_memory_mb: float

    @property
    def peak_memory(self) -> str:
        """The peak memory as text."""
        return f"{self.peak_memory_mb:,.0f} MB" if isfinite(self.peak_memory_mb) else "unknown"

    def figures(self) -> dict[str, float]:
        """Return the figures of the final table; without the peak memory where it is unknown."""
        figures = {
            "held_out_accuracy": self.accuracies[PRETRAINED].value,
            "finetuned_accuracy": self.accuracies[FINETUNED].value,
            "no_pretraining_accuracy": self.accuracies[NOT_PRETRAINED].value,
            "untrained_accuracy": self.accuracies[UNTRAINED].value,
            "majority_accuracy": self.accuracies[MAJORITY].value,
            "auroc": self.chosen.auroc,
            "seconds": round(self.seconds, 1),
            "peak_memory_mb": round(self.peak_memory_mb, 1),
        }
        return {name: value for name, value in figures.items() if isfinite(value)}


def recall(out: Path, config: WorldConfig, stages: Stages, options: ExecutionOptions) -> Recall:
    """Run the experiment; the world and the runs are written below `out`."""
    if config.absent < 2:
        raise UserError(
            f"world.absent = {config.absent}: the signals are measured on absent people; choose 2 "
            "or more"
        )
    started = time.perf_counter()
    world = make_world(config)
    save_world(world, out / "world")
    arms, seed = _train_arms(out, stages, options), stages.pretraining.seed

    questions = world.questions("text_only")
    text_only, absent = (
        answer(arms[PRETRAINED], asked, options.environment, signals=quick_signals(WORDINGS))
        for asked in (questions, world.questions("absent"))
    )
    known, few = world.questions("qa_train"), quick_signals()
    qa_train = answer(arms[PRETRAINED], known, options.environment, signals=few)
    groups: dict[Group, list[Answer]] = {
        "qa_train": qa_train,
        "text_only": text_only,
        "absent": absent,
    }
    others = {name: run for name, run in arms.items() if name != PRETRAINED}
    answers = {PRETRAINED: text_only} | {
        name: answer(run, questions, options.environment, signals=few)
        for name, run in others.items()
    }
    accuracies = {name: accuracy([a.correct for a in given]) for name, given in answers.items()}
    commonest = majority_answer(known)
    return Recall(
        world=world,
        arms=arms,
        accuracies=accuracies | {MAJORITY: baseline_accuracy(questions, commonest)},
        text_only=text_only,
        absent=absent,
        chosen=choose_signal(text_only, absent, seed=seed),
        verdicts={
            group: count_verdicts(world.group(group), given) for group, given in groups.items()
        },
        abstention=abstain([*text_only, *absent], seed=seed),
        seconds=time.perf_counter() - started,
        peak_memory_mb=peak_memory_mb(),
    )


def count_verdicts(people: Sequence[Person], answers: Sequence[Answer]) -> dict[str, int]:
    """Return the number of answers of each verdict, most frequent first."""
    found = Counter(person_verdict(*pair) for pair in zip(people, answers, strict=True))
    return {str(name): count for name, count in found.most_common()}


def person_verdict(person: Person, answer: Answer) -> Verdict:
    """Return the verdict on an answer about a person of the world.

    The world records all birthplaces, even of absent people, and whether the text states them.
    """
    stated = {person.place} if person.statements else ()
    return verdict(answer.answered, {person.place}, stated)


def abstain(answers: Sequence[Answer], *, seed: int, max_error: float = MAX_ERROR) -> Abstention:
    """Calibrate confidence and threshold on a random half of answers, and apply them to the rest.

    Answers about absent people count as wrong.
    """
    names = list(answers[0].scores)
    signals = signal_matrix([answer.scores for answer in answers], names)
    correct = np.array([answer.correct for answer in answers])
    half, other = np.array_split(np.random.default_rng(seed).permutation(len(answers)), 2)
    combination, guarantee = calibrate(signals[half], correct[half], max_error=max_error, seed=seed)
    confidence = combination(signals[other])
    given = guarantee.answers(confidence)
    judged = [
        replace(
            answers[i],
            confidence=float(sure),
            answer=answers[i].best_guess if is_given else None,
        )
        for i, sure, is_given in zip(other.tolist(), confidence, given, strict=True)
    ]
    return Abstention(guarantee=guarantee, answers=judged)


def _train_arms(out: Path, stages: Stages, options: ExecutionOptions) -> Arms:
    """Train the models to compare on the world's files; all answer the same questions."""
    recipe = stages.pretraining
    corpus = read_corpus([out / "world" / "wiki.txt"])
    qa_train = read_answered(out / "world" / "birth_places_train.tsv")
    mixed = plan_training(DocumentSource(corpus, qa_train), recipe, out / "pretrained")
    tokenizer = mixed.run.tokenizer
    untrained = Run.new(out / "untrained", recipe, tokenizer, {})
    untrained.model.to(options.environment.device).eval()
    on_text = text_only(recipe, mixed.sampler.steps)
    text = plan_training(DocumentSource(corpus), on_text, out / "text-only", tokenizer=tokenizer)
    no_text = plan_training(
        QuestionSource(qa_train), stages.questions, out / "not-pretrained", tokenizer=tokenizer
    )

    def train_others(options: ExecutionOptions) -> Run:
        _execute(text, 2, options)
        source = QuestionSource(qa_train, "finetuning")
        finetuned = plan_training(source, stages.finetuning, out / "finetuned", text.run)
        _execute(finetuned, 3, options)
        _execute(no_text, 4, options)
        return finetuned.run

    finetuned = _train_side_by_side(partial(_execute, mixed, 1), train_others, options)
    return {
        PRETRAINED: mixed.run,
        FINETUNED: finetuned,
        NOT_PRETRAINED: no_text.run,
        UNTRAINED: untrained,
    }


def _execute(plan: Plan, number: int, options: ExecutionOptions) -> None:
    """Train one of the four models, under its name and number."""
    dataclasses.replace(plan, title=f"{plan.run.path.name} ({number} of 4)").execute(options)


def _train_side_by_side(
    train: Callable[[ExecutionOptions], object],
    train_others: Callable[[ExecutionOptions], T],
    options: ExecutionOptions,
) -> T:
    """Train in this thread, and other models in a second, quiet one that stops with the first.

    Each uses half of the CPU threads, since models this small train hardly faster on more. On a
    GPU, or with a single thread, they train one after the other.
    """
    if not _trains_side_by_side(options.environment):
        train(options)
        return train_others(options)
    threads, stopped = torch.get_num_threads(), Event()

    @contextmanager
    def unless_stopped() -> Iterator[None]:
        if stopped.is_set():
            raise InterruptedTraining("the other training was stopped")
        yield

    def in_second_thread() -> T:
        torch.set_num_threads(threads // 2)
        return train_others(
            dataclasses.replace(options, quiet=True, loggers=(), publishing=unless_stopped)
        )

    with ThreadPoolExecutor(1, "training") as pool:
        others = pool.submit(in_second_thread)
        try:
            torch.set_num_threads(threads - threads // 2)
            train(options)
            return others.result()
        finally:
            stopped.set()
            torch.set_num_threads(threads)


def _trains_side_by_side(environment: ExecutionEnvironment) -> bool:
    return environment.device.type == "cpu" and torch.get_num_threads() > 1
