"""Signals of confidence in a greedy answer: for each, higher is more trustworthy.

A question's signals depend on that question alone, never on others in the batch. Costs are in
forward passes per question: rows that the model reads, or tokens that it generates.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from math import log, log1p
from statistics import fmean
from typing import TypeAlias

import msgspec
import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.corpus.evidence import AnswerNames, find_evidence
from regard.corpus.index import CorpusIndex, fold_words
from regard.corpus.relations import Relation
from regard.data import IGNORE
from regard.data.batch import evaluation_batches, lengths_of, pad_rows
from regard.decoding.generate import (
    Generated,
    begin_answers,
    decode_answer,
    generate_answers,
    generate_ids,
)
from regard.decoding.sampling import Sampling
from regard.environment import ExecutionEnvironment
from regard.runs.run import Run
from regard.tasks.examples import Example, encode_questions, subject_of
from regard.text.corpus import Document
from regard.text.tokenizer import encode_documents

BATCH = 256
"""Largest number of rows that the model reads or answers together."""
MAX_NEW_TOKENS = 32
"""Largest number of tokens of an answer."""
SIGNALS = {
    "log-probability": "log-probability of the greedy answer, its end included",
    "weakest token": "log-probability of the answer's least probable token",
    "margin": "smallest lead of a token of the answer over the next best, in log-probability",
    "familiarity": "log-probability of the subject at the start of a text",
    "stability": "mean log-probability of the answer when a word outside the subject is left out",
    "whole name": "log-probability of the answer minus its mean when a word of the subject is",
    "PMI": "log-probability of the answer minus its mean over questions about other subjects",
    "self-consistency": "share of sampled answers that equal the greedy one",
    "semantic entropy": "minus the entropy of the sampled answers, in nats",
    "agreement": "share of pairs of wordings of the question with the same answer",
    "exposure": "log(1 + number of documents that mention the subject)",
    "support": "share of the answers in these documents that are the given one",
    "statement": "probability that these documents state the answer, minus that of another answer",
    "confidence": "probability of the answer; of a calibrated run, that it is right",
}
"""Definitions of the signals; exposure, support and statement need an index of the corpus."""
QUICK = ("weakest token", "familiarity")
"""Signals that take at most one forward pass. The confidence is the probability, so not listed."""
OWN = ("log-probability", "weakest token", "margin", "familiarity", "stability", "whole name")
"""Signals that need only the question."""
OF_ANSWER = ("log-probability", "weakest token")
"""Signals of the answer's own tokens; the others read further texts."""


Column: TypeAlias = Sequence[float] | Float[np.ndarray, " questions"]
"""One signal: a value for each question."""


class SignalConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The signals to measure, and the other questions that some of them need."""

    names: tuple[str, ...] = OWN
    """Signals that need only the question; the fields below add others."""
    subjects: tuple[str, ...] = ()
    """Other subjects, for PMI."""
    wordings: tuple[str, ...] = ()
    """Other wordings of the question, {} for the subject."""
    samples: int = 0
    """Number of answers sampled at temperature 1."""
    seed: int = 0


def quick_signals(wordings: Sequence[str] = ()) -> SignalConfig:
    """Return the signals that take at most one pass, and agreement if wordings are given."""
    return SignalConfig(names=QUICK, wordings=tuple(wordings))


def measure(
    run: Run,
    questions: Sequence[Example],
    greedy: Sequence[Generated],
    environment: ExecutionEnvironment,
    config: SignalConfig,
) -> list[dict[str, float]]:
    """Return the model's signals of its greedy answers.

    Raises:
        UserError: a question can't be encoded or is too long, or the model isn't causal.
    """
    texts = [question.text for question in questions]
    about = [subject_of(text) or text for text in texts]
    answers = [decode_answer(run, one) for one in greedy]
    ends = [[] if one.stop_id is None else [one.stop_id] for one in greedy]
    completions = [[*one.ids, *end] for one, end in zip(greedy, ends, strict=True)]
    own = [sum(one.log_probabilities) for one in greedy]
    pairs = list(zip(texts, about, strict=True))

    def means(others: Iterable[Sequence[str]]) -> list[float]:
        return mean_log_probabilities(run, own, list(others), completions, environment)

    compute: dict[str, Callable[[], Column]] = {
        "log-probability": lambda: own,
        "weakest token": lambda: [min(one.log_probabilities) for one in greedy],
        "margin": lambda: _margins(run, questions, completions, environment),
        "familiarity": lambda: name_log_probabilities(run, about, environment),
        "stability": lambda: means(without_a_word(*pair) for pair in pairs),
        "whole name": lambda: np.subtract(own, means(without_a_name(*pair) for pair in pairs)),
    }
    columns = {name: compute[name]() for name in config.names}
    if config.subjects:
        others = [_about_others(*pair, config.subjects) for pair in pairs]
        columns["PMI"] = np.subtract(own, means(others))
    if config.samples:
        sampled = sample_answers(run, texts, environment, n=config.samples, seed=config.seed)
        columns["self-consistency"] = list(map(self_consistency, answers, sampled))
        columns["semantic entropy"] = [-semantic_entropy(given) for given in sampled]
    if config.wordings:
        columns["agreement"] = _agreements(run, answers, about, config.wordings, environment)
    return [
        {name: float(column[i]) for name, column in columns.items()} for i in range(len(questions))
    ]


def _margins(
    run: Run,
    questions: Sequence[Example],
    completions: Sequence[Sequence[int]],
    environment: ExecutionEnvironment,
) -> list[float]:
    rows = encode_questions(run.template, questions, run.recipe.model.context_length)
    prompts = [run.template.open_answer(row) for row in rows]
    tokens = score_tokens(run, prompts, completions, environment)
    return [float(one.margins.min()) for one in tokens]


def corpus_signals(
    index: CorpusIndex, question: str, answer: str, known: AnswerNames, relation: Relation | None
) -> dict[str, float]:
    """Return the signals of an answer by an index of the corpus.

    They don't depend on the expected answer. `known` are the names of answers; if the documents
    contain none of them, support is 0.
    """
    subject = subject_of(question)
    documents = stated = said = 0
    lead = 0.0
    if subject:
        found = find_evidence(index, subject, answer, names=known, relation=relation)
        documents, stated, lead = found.documents, len(found.passages), found.lead
        said = stated + sum(found.others.values())
    signals = {"exposure": log1p(documents), "support": stated / said if said else 0.0}
    return signals if relation is None else signals | {"statement": lead}


# Log-probabilities


@dataclass(frozen=True)
class TokenScores:
    """Scores of the tokens of a completion."""

    log_probabilities: Float[Tensor, " n"]
    margins: Float[Tensor, " n"]
    """Lead over the best other token; negative where a token isn't the best."""


@torch.inference_mode()
def score_tokens(
    run: Run,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    environment: ExecutionEnvironment,
) -> list[TokenScores]:
    """Score the tokens of nonempty completions, in one forward pass for each.

    Raises:
        UserError: the model isn't a causal language model.
    """
    pairs = list(zip(prompts, completions, strict=True))
    rows = [[*prompt, *completion] for prompt, completion in pairs]
    labels = [[*[IGNORE] * len(prompt), *completion] for prompt, completion in pairs]
    limit, padding = run.recipe.model.context_length + 1, run.tokenizer.special.padding
    result: list[TokenScores] = []
    for part in evaluation_batches([len(row) for row in rows], BATCH):
        padded = pad_rows(rows[part], padding, limit=limit)[:, :-1].to(environment.device)
        targets = pad_rows(labels[part], IGNORE, limit=limit)[:, 1:].to(environment.device)
        lengths = (lengths_of(rows[part]) - 1).to(environment.device)
        with environment.autocast():
            found = run.language_model.target_logits(padded, targets, lengths)
            scored = [_scored(*of_part) for of_part in found]
        sizes = [len(completion) for completion in completions[part]]
        columns = (torch.cat(column).cpu().split(sizes) for column in zip(*scored, strict=True))
        result += [TokenScores(*row) for row in zip(*columns, strict=True)]
    return result


def _scored(
    targets: Int[Tensor, " n"], logits: Float[Tensor, "n vocabulary"]
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return the log-probabilities of tokens, and their leads over the best others."""
    scores = logits.log_softmax(-1)
    given = scores.gather(-1, targets[:, None])
    margins = given - scores.scatter_(-1, targets[:, None], -torch.inf).amax(-1, keepdim=True)
    return given.squeeze(-1), margins.squeeze(-1)


def name_log_probabilities(
    run: Run, names: Sequence[str], environment: ExecutionEnvironment
) -> list[float]:
    """Return log P(name) at the start of a text, in one forward pass for each.

    If texts have no start token, the first token of the name can't be predicted and is left out.
    """
    encoded = [run.tokenizer.encode(name)[: run.max_text_tokens] for name in names]
    rows = [run.text_affixes.around(ids) for ids in encoded]
    found = [0.0] * len(rows)
    scored = [i for i, row in enumerate(rows) if len(row) > 1]
    firsts, rests = [rows[i][:1] for i in scored], [rows[i][1:] for i in scored]
    for i, one in zip(scored, score_tokens(run, firsts, rests, environment), strict=True):
        found[i] = float(one.log_probabilities.sum())
    return found


def mean_log_probabilities(
    run: Run,
    own: Sequence[float],
    others: Sequence[Sequence[str]],
    completions: Sequence[Sequence[int]],
    environment: ExecutionEnvironment,
) -> list[float]:
    """Return the mean of log P(a | q') over the questions q' in `others`.

    One forward pass for each q'. A q' that doesn't fit the context with the answer is left out;
    if none is left, the mean is `own`, log P(a | q).
    """
    context_length = run.recipe.model.context_length
    prompts, asked, owners = list[list[int]](), list[Sequence[int]](), list[int]()
    for i, (questions, completion) in enumerate(zip(others, completions, strict=True)):
        for ids in map(run.tokenizer.encode, questions):
            row = run.template.open_answer(run.template.prompt.around(ids))
            if len(row) + len(completion) <= context_length + 1:
                prompts.append(row)
                asked.append(completion)
                owners.append(i)
    found = list[list[float]]([] for _ in completions)
    for i, one in zip(owners, score_tokens(run, prompts, asked, environment), strict=True):
        found[i].append(float(one.log_probabilities.sum()))
    return [fmean(values or [default]) for values, default in zip(found, own, strict=True)]


def without_a_word(question: str, subject: str) -> list[str]:
    """Return a question without each of its words outside the subject, in turn."""
    start = question.find(subject)
    words = list(re.finditer(r"\S+", question))
    outside = [
        word for word in words if word.end() <= start or word.start() >= start + len(subject)
    ]
    return [" ".join(word.group() for word in words if word != left) for left in outside]


def without_a_name(question: str, subject: str) -> list[str]:
    """Return a question without each word of its subject, in turn; none for a single word."""
    words = subject.split()
    shorter = (" ".join(words[:i] + words[i + 1 :]) for i in range(len(words)))
    return [question.replace(subject, name) for name in shorter if name]


# Several answers


def sample_answers(
    run: Run, questions: Sequence[str], environment: ExecutionEnvironment, *, n: int, seed: int = 0
) -> list[list[str]]:
    """Return n answers to each question, sampled at temperature 1; costs all of their tokens."""
    examples = [Example(text=text, where=f"question {i}") for i, text in enumerate(questions, 1)]
    prompts = encode_questions(run.template, examples, run.recipe.model.context_length)
    rows = [row for row in prompts for _ in range(n)]
    keys = [
        int.from_bytes(f"{i} {question}".encode(), "little")
        for question in questions
        for i in range(n)
    ]

    def max_new_tokens(keyed: tuple[list[int], int]) -> int:
        left = run.recipe.model.context_length + 1 - len(run.template.open_answer(keyed[0]))
        return min(MAX_NEW_TOKENS, left)

    texts: list[str] = []
    with environment.autocast():
        # Rows of the same limit together: a long question would cut the answers to others.
        for limit, together in groupby(zip(rows, keys, strict=True), max_new_tokens):
            alike = list(together)
            for part in _answered_together([row for row, _ in alike], limit):
                model, starts = begin_answers(run, [row for row, _ in alike[part]])
                drawn = tuple(key for _, key in alike[part])
                made = generate_ids(
                    model,
                    starts,
                    max_new_tokens=limit,
                    stop_ids=run.tokenizer.special.stop_ids,
                    sampling=Sampling(temperature=1.0, seed=seed, keys=drawn),
                    device=run.device,
                )
                texts += [decode_answer(run, one) for one in made]
    return [texts[i : i + n] for i in range(0, len(texts), n)]


def normalize(answer: str) -> str:
    """Return an answer's words, NFKC-normalized and case-folded, for comparison with others."""
    return " ".join(fold_words(answer))


def self_consistency(answer: str, sampled: Sequence[str]) -> float:
    """Return the share of sampled answers that equal an answer (Wang et al., 2023)."""
    return sum(normalize(one) == normalize(answer) for one in sampled) / len(sampled)


def semantic_entropy(sampled: Sequence[str]) -> float:
    """Return the entropy of the clusters of sampled answers, in nats (Kuhn et al., 2023).

    A cluster is a normalized string. The estimate counts samples, as their discrete variant.
    """
    words = [normalize(one) for one in sampled]
    shares = [words.count(one) / len(words) for one in set(words)]
    return -sum(share * log(share) for share in shares)


def agreement(answers: Sequence[str]) -> float:
    """Return the share of pairs of answers that are the same; 1 for a single answer."""
    same = [a == b for a, b in combinations(answers, 2)]
    return fmean(same) if same else 1.0


def answer_rows(
    run: Run,
    rows: Sequence[list[int]],
    environment: ExecutionEnvironment,
    *,
    max_new_tokens: int = MAX_NEW_TOKENS,
) -> list[Generated]:
    """Answer encoded questions greedily, in batches."""
    answers: list[Generated] = []
    with environment.autocast():
        for part in _answered_together(rows, max_new_tokens):
            answers += generate_answers(run, rows[part], max_new_tokens=max_new_tokens)
    return answers


def _answered_together(rows: Sequence[Sequence[int]], max_new_tokens: int) -> Iterator[slice]:
    return evaluation_batches([len(row) + max_new_tokens for row in rows], BATCH)


def _agreements(
    run: Run,
    answers: Sequence[str],
    about: Sequence[str],
    wordings: Sequence[str],
    environment: ExecutionEnvironment,
) -> list[float]:
    """Return the agreement of each answer with those to other wordings that fit the context."""
    given, template = [[one] for one in answers], run.template
    for wording in wordings:
        where = f"paraphrase {wording!r}"
        texts = [Document(wording.replace("{}", subject), where) for subject in about]
        rows = [template.prompt.around(ids) for ids in encode_documents(run.tokenizer, texts)]
        taken = [len(template.open_answer(row)) for row in rows]
        fits = [i for i, n in enumerate(taken) if n < run.recipe.model.context_length]
        if left_out := len(rows) - len(fits):
            warnings.warn(
                f"{where}: is too long for the context of {left_out} of {len(rows)} "
                "questions, and left out of their agreement",
                stacklevel=2,
            )
        made = answer_rows(run, [rows[i] for i in fits], environment)
        for i, one in zip(fits, made, strict=True):
            given[i].append(decode_answer(run, one))
    return [agreement([normalize(one) for one in row]) for row in given]


def _about_others(question: str, about: str, subjects: Sequence[str]) -> list[str]:
    """Return a question about each other subject."""
    return [question.replace(about, other) for other in subjects if other != about]
