"""Scores of a run on its task, with those of baselines."""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import exp
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.data import IGNORE
from regard.data.batch import PaddedIds, evaluation_batches
from regard.decoding.generate import decode_answer, generate_answers
from regard.environment import ExecutionEnvironment, Precision
from regard.errors import UserError, require_list
from regard.metrics import accuracy, mean_reciprocal_rank, ranks, recall_at
from regard.models.builders import (
    Classifier,
    Embedder,
    LanguageModel,
    Reconstructor,
    SequenceToSequence,
    TokenClassifier,
)
from regard.models.head_config import (
    ClassificationHeadConfig,
    EmbeddingHeadConfig,
    TokenClassificationHeadConfig,
)
from regard.models.tensors import TokenIds
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.tasks.bag_of_words import tf_idf
from regard.tasks.encoding import encode_texts, encode_words, max_prompt_length
from regard.tasks.examples import Example, Examples, require_all_or_none
from regard.tasks.probes import ProbeConfig, as_tokens, draw_probe_test
from regard.tasks.registry import TextTask, check_examples, read_rows
from regard.tasks.rows import load_rows
from regard.tasks.split import Scores

BATCH = 128
"""Largest number of rows that the model reads or answers together."""
PROBE_ROWS = 1000
RECALLS = (1, 5, 10)
"""Values of k for recall@k: a document of rank at most k counts as retrieved."""
PROBE_SCORES = ("accuracy", "whole rows")
"""Shares of targets and of whole rows that are predicted."""


def score_names(recipe: Recipe) -> list[str]:
    """Return the names of the scores of a recipe's runs on its task; none without a task."""
    task = recipe.task
    if task is None:
        return []
    if isinstance(task, ProbeConfig):
        return list(PROBE_SCORES)
    if isinstance(recipe.head, EmbeddingHeadConfig):
        return list(_rank_scores(np.eye(1), np.zeros(1, dtype=np.int64), recipe.seed))
    return list(task.score(["a"], ["a"], recipe.seed))


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """An answer, and its probability under the model."""

    text: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class TaskScore:
    """Scores of a run on its task."""

    rows: int
    """Number of examples."""
    scores: Scores
    """Empty where the questions have no answers."""
    baselines: dict[str, Scores] = field(default_factory=dict)
    predictions: list[Prediction] = field(default_factory=list)
    cut: int = 0
    """Number of texts truncated to fit the model."""
    absent: int = 0
    """Number of rows whose label is absent from those of the model; scored as wrong."""
    in_training: int | None = None
    """Number of rows whose text the run was trained on; None if unknown."""

    def lines(self) -> list[str]:
        """Return the scores as text, a line for the run and for each baseline."""
        lines = [count_line(self.rows, "rows", self.in_training)]
        if self.cut:
            lines.append(f"{self.cut} texts don't fit the model and were truncated")
        if self.absent:
            lines.append(f"rows with a label absent from training, scored as wrong: {self.absent}")
        if not self.scores:
            return [*lines, f"{len(self.predictions)} answers; --predictions FILE writes them"]
        return lines + [
            f"{name}: " + ", ".join(f"{score} {interval}" for score, interval in scores.items())
            for name, scores in self._rows.items()
        ]

    def figures(self) -> dict[str, Any]:
        """Return the scores for a JSON file."""
        return {
            name: {score: asdict(interval) for score, interval in scores.items()}
            for name, scores in (self._rows.items() if self.scores else ())
        }

    @property
    def answered(self) -> list[str]:
        """The predicted answers."""
        return [prediction.text for prediction in self.predictions]

    @property
    def _rows(self) -> dict[str, Scores]:
        return {"this run": self.scores, **self.baselines}


def score_task(
    run: Run, environment: ExecutionEnvironment, questions: Sequence[Example] | None = None
) -> TaskScore:
    """Score a run on its task: on these questions, or on the task's own test examples.

    The task's baselines are scored too if the examples are its own.

    Raises:
        UserError: the run has no task, or a question can't be used.
    """
    task = run.recipe.task
    if task is None:
        raise UserError(f"{run.path}: was trained for no task: name a file of questions")
    if isinstance(task, ProbeConfig):
        if questions is not None:
            raise UserError(f"{run.path}: was trained on a probe, which makes its own rows")
        return score_probe(run, task, environment, rows=PROBE_ROWS, seed=run.recipe.seed + 1)
    split = None
    if questions is None:
        split = task.make(run.recipe.seed)
        questions = split.test
    if not questions:
        raise UserError(f"{run.path}: can't be scored without questions; name a file of them")
    check_examples(task, questions)
    require_all_or_none(questions)
    if isinstance(run.model, Embedder):
        if questions[0].answer is None:
            raise UserError(f"{questions[0].place}: has no document; add one after a tab")
        return score_ranks(run, questions, environment)
    return score_answers(run, task, questions, environment, split.training if split else ())


def given_examples(
    run: Run, data: Examples | None, *, skip_bad: bool = False
) -> list[Example] | None:
    """Return the examples of a file, or the held-out rows of a run; None for the task's own.

    If `skip_bad`, bad rows of a file are left out with a warning, even if training didn't.

    Raises:
        UserError: an example is malformed; or the run was trained on a file, and has no other rows.
    """
    task = run.recipe.task
    if data is None:
        held_out = load_rows(run.path)
        if held_out is None and run.origin.get("inputs"):
            raise UserError(f"{run.path}: was trained on a file: name one to score it on")
        return held_out
    if isinstance(task, ProbeConfig):
        raise UserError(f"{run.path}: was trained on a probe, which makes its own rows")
    if not isinstance(data, str | Path):
        return list(data)
    assert task is not None
    table = msgspec.structs.replace(run.recipe.data.table, skip_bad=skip_bad)
    rows = read_rows(task, Path(data), table, label_required=False)
    if rows.bad:
        left_out = f"bad rows left out: {len(rows.bad)}; the first: {rows.bad[0]}"
        warnings.warn(f"{data}: {left_out}", stacklevel=2)
    return rows.examples


def scored_examples(run: Run, data: Examples | None, *, skip_bad: bool = False) -> list[Example]:
    """Return the examples for scoring a run with a text task.

    Raises:
        UserError: as `given_examples`; or the run has no such task.
    """
    found, task = given_examples(run, data, skip_bad=skip_bad), run.recipe.task
    if found is not None:
        return found
    if task is None or isinstance(task, ProbeConfig):
        raise UserError(f"{run.path}: wasn't trained for a task of texts: name a file")
    return list(task.make(run.recipe.seed).test)


def score_answers(
    run: Run,
    task: TextTask,
    questions: Sequence[Example],
    environment: ExecutionEnvironment,
    training: Sequence[Example] = (),
) -> TaskScore:
    """Score a run's answers, and those of the baselines if there are examples to fit them.

    Raises:
        UserError: a question can't be encoded, or the model doesn't answer.
    """
    seed = run.recipe.seed
    predictions, cut = predict(run, questions, environment)
    right = [question.answer for question in questions if question.answer is not None]
    if not right:
        return TaskScore(rows=len(questions), scores={}, predictions=predictions, cut=cut)
    guesses = task.baselines(training, questions) if training else {}
    return TaskScore(
        rows=len(questions),
        scores=task.score([p.text for p in predictions], right, seed),
        baselines={name: task.score(guess, right, seed) for name, guess in guesses.items()},
        predictions=predictions,
        cut=cut,
        absent=_count_absent(run, right),
    )


def _count_absent(run: Run, answers: Sequence[str]) -> int:
    head = run.recipe.head
    if not isinstance(head, ClassificationHeadConfig):
        return 0
    return sum(answer not in head.labels for answer in answers)


def label(
    run: Run, texts: Sequence[str | tuple[str, str]], *, precision: Precision = "float32"
) -> list[Prediction]:
    """Return the label of each text or pair of texts, or the tags of its words, with probabilities.

    Raises:
        UserError: the run gives no labels; or a text is empty, too long, or can't be encoded.

    >>> texts = ["Ada was born in Rome.", "Bob was born in Oslo."]
    >>> [one.text in ("good", "bad") for one in regard.label(regard.load("labels"), texts)]
    [True, True]
    """
    if not isinstance(run.model, Classifier | TokenClassifier):
        raise UserError(
            f"{run.path}: gives no labels; take a run with head.kind=classification or "
            "token-classification"
        )
    require_list(texts, "texts")
    pairs = [(text, None) if isinstance(text, str) else text for text in texts]
    asked = [
        Example(text=text, second=second, where=f"prompt {i}")
        for i, (text, second) in enumerate(pairs, 1)
    ]
    if run.recipe.task is not None and not isinstance(run.recipe.task, ProbeConfig):
        check_examples(run.recipe.task, asked)
    for question in asked:
        if "" in (question.text.strip(), question.second and question.second.strip()):
            raise UserError(f"{question.where}: is empty; write a text")
    found, cut = predict(run, asked, run.environment(precision))
    if cut:
        raise UserError(
            f"{cut} prompts take more than the model's {run.max_text_tokens} tokens; shorten them"
        )
    return found


def predict(
    run: Run, questions: Sequence[Example], environment: ExecutionEnvironment
) -> tuple[list[Prediction], int]:
    """Return the answer to each question, and the number of truncated questions.

    Raises:
        UserError: a question can't be encoded, or the model doesn't answer.
    """
    context_length, longest = run.recipe.model.context_length, run.recipe.max_source_tokens
    affixes = run.text_affixes
    if isinstance(run.model, LanguageModel):
        affixes, longest = run.template.prompt, max_prompt_length(longest, run.template)
    encode = encode_words if isinstance(run.model, TokenClassifier) else encode_texts
    encoded = encode(run.template, affixes, questions, longest)
    generates = isinstance(run.model, LanguageModel | SequenceToSequence)
    sizes = [context_length if generates else len(row) for row in encoded.rows]
    predictions: list[Prediction] = []
    for part in evaluation_batches(sizes, BATCH):
        with environment.autocast():
            predictions += _answer(run, encoded.rows[part], encoded.marks[part], environment.device)
    return predictions, encoded.cut


Rows: TypeAlias = Sequence[list[int]]


@torch.inference_mode()
def _answer(run: Run, rows: Rows, marks: Rows, device: torch.device) -> list[Prediction]:
    match run.model:
        case LanguageModel() | SequenceToSequence():
            return [
                Prediction(
                    text=decode_answer(run, answer),
                    probability=exp(sum(answer.log_probabilities)),
                )
                for answer in generate_answers(run, rows)
            ]
        case Classifier():
            return _labels(run, run.model, rows, marks, device)
        case TokenClassifier():
            return _tags(run, run.model, rows, marks, device)
    kind = run.recipe.head.__struct_config__.tag
    raise UserError(f"{run.path}: a model with a head for {kind} gives no answers")


def _padded(run: Run, rows: Rows, device: torch.device) -> PaddedIds:
    return run.row_format.whole_rows.input_ids(rows).to(device)


def _labels(
    run: Run, model: Classifier, rows: Rows, segments: Rows, device: torch.device
) -> list[Prediction]:
    assert isinstance(run.recipe.head, ClassificationHeadConfig)
    padded, format = _padded(run, rows, device), run.row_format.whole_rows
    types = [format.aligned(segments, 0).ids.to(device)] if run.recipe.uses_token_types else []
    logits = model(padded.ids, padded.lengths, *types)
    best, label = logits.float().softmax(-1).max(-1)
    names = run.recipe.head.labels
    return [
        Prediction(text=names[i], probability=p)
        for i, p in zip(label.tolist(), best.tolist(), strict=True)
    ]


def _tags(
    run: Run, model: TokenClassifier, rows: Rows, ends: Rows, device: torch.device
) -> list[Prediction]:
    """Return the tags of words, by their last tokens, and the product of their probabilities."""
    assert isinstance(run.recipe.head, TokenClassificationHeadConfig)
    padded = _padded(run, rows, device)
    logits = model(padded.ids, padded.lengths)
    best, label = logits.float().log_softmax(-1).max(-1)
    names = run.recipe.head.labels
    return [
        Prediction(
            text=" ".join(names[tags[end]] for end in of_row),
            probability=exp(sum(scores[end] for end in of_row)),
        )
        for tags, scores, of_row in zip(label.tolist(), best.tolist(), ends, strict=True)
    ]


# Retrieval


def score_ranks(
    run: Run, questions: Sequence[Example], environment: ExecutionEnvironment
) -> TaskScore:
    """Rank each question's document among those of all questions.

    Raises:
        UserError: a text can't be encoded, or the model makes no vectors.
    """
    answers = [Example(text=question.answer or "", where=question.place) for question in questions]
    documents = {answer.text: answer for answer in answers}
    place = {text: i for i, text in enumerate(documents)}
    right = np.array([place[answer.text] for answer in answers])
    asked, cut = embed(run, questions, environment)
    vectors, cut_too = embed(run, list(documents.values()), environment)
    in_common = tf_idf([question.text for question in questions], list(documents))
    seed = run.recipe.seed
    return TaskScore(
        rows=len(questions),
        scores=_rank_scores(asked @ vectors.T, right, seed),
        baselines={"TF-IDF": _rank_scores(in_common, right, seed)},
        cut=cut + cut_too,
    )


def _rank_scores(similarity: Float[np.ndarray, "n m"], right: np.ndarray, seed: int) -> Scores:
    found = ranks(similarity, right)
    recalls = {f"recall@{k}": recall_at(found, k) for k in RECALLS}
    return recalls | {"MRR": mean_reciprocal_rank(found, seed=seed)}


@torch.inference_mode()
def embed(
    run: Run, questions: Sequence[Example], environment: ExecutionEnvironment
) -> tuple[Float[np.ndarray, "texts width"], int]:
    """Return a vector of norm 1 for each text, and the number of truncated texts.

    Raises:
        UserError: a text can't be encoded, or the model makes no vectors.
    """
    if not isinstance(run.model, Embedder):
        raise UserError(
            f"{run.path}: makes no vectors of texts; train one with head.kind=embedding"
        )
    texts = encode_texts(run.template, run.text_affixes, questions, run.recipe.max_source_tokens)
    vectors = []
    for part in evaluation_batches([len(row) for row in texts.rows], BATCH):
        padded = _padded(run, texts.rows[part], environment.device)
        with environment.autocast():
            made = run.model(padded.ids, padded.lengths)
        vectors.append(made.float().cpu().numpy())
    return np.concatenate(vectors), texts.cut


# Probes


@torch.inference_mode()
def score_probe(
    run: Run, task: ProbeConfig, environment: ExecutionEnvironment, *, rows: int, seed: int
) -> TaskScore:
    """Return the shares of targets, and of whole rows, predicted right on newly drawn rows."""
    drawn = as_tokens(draw_probe_test(task, seed, rows), run.tokenizer)
    ids, labels = (torch.from_numpy(x).to(environment.device) for x in drawn)
    right: list[bool] = []
    whole: list[bool] = []
    for part in evaluation_batches([ids.shape[1]] * rows, BATCH):
        with environment.autocast():
            hits = _probe_hits(run, ids[part], labels[part]).cpu()
        right += hits.tolist()
        sizes = (labels[part] != IGNORE).sum(1).tolist()
        whole += [bool(row.all()) for row in hits.split(sizes) if len(row)]
    scores = dict(zip(PROBE_SCORES, map(accuracy, (right, whole)), strict=True))
    return TaskScore(rows=rows, scores=scores)


def _probe_hits(run: Run, ids: TokenIds, labels: TokenIds) -> Bool[Tensor, " targets"]:
    """Return whether each target is predicted right; rows have no padding."""
    if isinstance(run.model, Reconstructor):
        lengths = torch.full(ids.shape[:1], ids.shape[1], device=ids.device)
        predicted: Tensor = run.model(ids, lengths).argmax(-1)
        return (predicted == labels)[labels != IGNORE]
    parts = run.language_model.target_logits(ids, labels)
    return torch.cat([logits.argmax(-1) == targets for targets, logits in parts])


def count_line(n: int, what: str, in_training: int | None) -> str:
    """Return a line with the number of examples, and how many of them were in training."""
    return f"{n} {what}" if in_training is None else f"{in_training} of {n} {what} were in training"
