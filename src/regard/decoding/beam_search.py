"""Beam search: the most probable whole continuations, where greedy choice sees one token ahead.

The rules are those of Hugging Face's `generate` (transformers 5.23, `_beam_search`), which many
published numbers come from. At each step, of all ways to go on by one token, the 2·beams most
probable are considered. Of the first `beams` of these, those that end are finished, and compete for
`beams` places by log-probability / length**penalty, where the length counts the new tokens, the
stop token included (Wu et al., 2016, eq. 14, has a kindred penalty). The best `beams` of those that
don't end go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decoding.generate import DAMAGED, Decoding, Generator, encode_prompts
from regard.environment import Precision
from regard.errors import NonFiniteError, UserError
from regard.runs.run import Run

EarlyStopping: TypeAlias = bool | Literal["never"]
"""When a prompt with `beams` finished continuations needs no more.

True: at once. False: when the best that goes on, scored at the length it has, isn't better than the
worst finished one. "never": when it couldn't become better; with a positive penalty, scored at the
greatest length.
"""


# Hypotheses: continuations of many prompts side by side, as tensors


class Hypotheses(NamedTuple):
    """n continuations of each row's prompt. A score of minus infinity says that there is none."""

    ids: Int[Tensor, "rows n steps"]
    """−1 behind the last token."""
    log_probabilities: Float[Tensor, "rows n"]
    """Float64, in which a thousand tokens add up without harm."""
    scores: Float[Tensor, "rows n"]
    """Scores for the ranking."""

    @staticmethod
    def none(rows: int, n: int, steps: int, device: torch.device) -> "Hypotheses":
        """No continuation."""
        ids = torch.full((rows, n, steps), -1, device=device)
        scores = torch.full((rows, n), float("-inf"), dtype=torch.float64, device=device)
        return Hypotheses(ids, scores, scores)

    @staticmethod
    def empty(rows: int, n: int, steps: int, device: torch.device) -> "Hypotheses":
        """One continuation of each row, without a token yet."""
        none = Hypotheses.none(rows, n, steps, device)
        certain = none.scores.index_fill(1, none.ids.new_zeros(1), 0.0)
        return Hypotheses(none.ids, certain, certain)

    def take(self, places: Int[Tensor, "rows m"]) -> "Hypotheses":
        """Those at the given places of each row, in that order."""
        ids, log_probabilities, scores = self
        whole = places[:, :, None].expand(-1, -1, ids.shape[2])
        return Hypotheses(
            ids.gather(1, whole), log_probabilities.gather(1, places), scores.gather(1, places)
        )

    def only(self, wanted: Bool[Tensor, "rows n"]) -> "Hypotheses":
        """Keep the given ones at their places; the others get a score of -inf."""
        return self._replace(scores=self.scores.masked_fill(~wanted, float("-inf")))

    def best(self, n: int) -> Int[Tensor, "rows n"]:
        """The places of the best, the best first; of equal ones, the first."""
        return self.scores.sort(dim=1, descending=True, stable=True).indices[:, :n]

    def beside(self, others: "Hypotheses") -> "Hypotheses":
        """These, and then the others."""
        return Hypotheses(*(torch.cat(pair, 1) for pair in zip(self, others, strict=True)))


def continuations(
    growing: Hypotheses, logits: Float[Tensor, "rows_n vocabulary"], step: int, most: int
) -> tuple[Hypotheses, Int[Tensor, "rows most"]]:
    """The most probable ways to write token `step`, the best first.

    Returns:
        The continuations, fewer than `most` if there aren't so many, and the place of the
        hypothesis that each one continues.
    """
    # The best of all are among the best of each.
    top, tokens = logits.topk(min(most, logits.shape[-1]), -1)
    at_least_float = torch.promote_types(logits.dtype, torch.float32)
    total = logits.to(at_least_float).logsumexp(-1, keepdim=True)
    rows, n = growing.scores.shape
    gained = (top.double() - total.double()).view(rows, n, -1)
    scores = (growing.scores[:, :, None] + gained).flatten(1)
    scores, chosen = scores.topk(min(most, scores.shape[1]), 1)
    parents = chosen // gained.shape[2]
    grown = growing.take(parents)
    grown.ids[:, :, step] = tokens.view(rows, -1).gather(1, chosen)
    return Hypotheses(grown.ids, scores, scores), parents


def stay(parents: Int[Tensor, "rows n"]) -> Int[Tensor, "rows n"]:
    """An order of the hypotheses in which as many as can stand in the places of their parents.

    Then least has to be moved of what is known about the parents. The first child of a parent gets
    its place; the others share the places of those that have no child.
    """
    n = parents.shape[1]
    place = torch.arange(n, device=parents.device)
    younger = (parents[:, :, None] == parents[:, None]).tril(-1).any(-1)
    children = torch.where(younger, n + place, parents).argsort(1)
    has_child = torch.zeros_like(younger).scatter(1, parents, True)
    places = torch.where(has_child, place, n + place).argsort(1)
    return torch.empty_like(parents).scatter(1, places, children)


# Search


@dataclass(frozen=True)
class Beam:
    """A continuation that beam search found.

    >>> [[best]] = search_ids(run.model, [[5, 6, 7]], beams=2, max_new_tokens=3)
    >>> len(best.ids), best.log_probability < 0, best.stopped
    (3, True, False)
    """

    ids: list[int]
    """Without the token that ended it."""
    log_probability: float
    """Of all new tokens together, that of the token that ended it included; in nats."""
    score: float
    """The log-probability / length**penalty."""
    stopped: bool
    """Whether one of the stop ids was reached."""


@torch.inference_mode()
def search_ids(
    model: Generator,
    prompts: Sequence[Sequence[int]],
    *,
    beams: int,
    max_new_tokens: int,
    stop_ids: Sequence[int] = (),
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = "never",
    n_best: int = 1,
    device: torch.device | None = None,
) -> list[list[Beam]]:
    """Return the `n_best` continuations of each prompt, the best first; fewer if there are fewer.

    Prompts may differ in length, and none may be empty; what is found for one doesn't depend on
    the others. A higher `length_penalty` favors longer continuations.

    Raises:
        UserError: `beams`, `n_best`, `max_new_tokens`, `length_penalty` or `early_stopping` is
            impossible.
        NonFiniteError: a logit is NaN or infinite.

    >>> [beams] = search_ids(run.model, [[5, 6, 7]], beams=4, max_new_tokens=3, n_best=2)
    >>> beams[0].score >= beams[1].score
    True
    """
    rules = _Rules(beams, max_new_tokens, stop_ids, length_penalty, early_stopping)
    if not 1 <= n_best <= beams:
        raise UserError(f"can't return {n_best} of {beams} beams; choose 1 to {beams}")
    decoding = Decoding.start(model, prompts, max_new_tokens, device)
    rows, device = len(prompts), decoding.logits.device
    place = torch.arange(rows * beams, device=device)
    first = place.view(rows, beams)[:, :1]
    decoding.logits = decoding.logits[place // beams]
    decoding.states = decoding.states.reorder(place // beams)
    growing = Hypotheses.empty(rows, beams, max_new_tokens, device)
    finished = Hypotheses.none(rows, beams, max_new_tokens, device)
    closed = torch.zeros(rows, dtype=torch.bool, device=device)
    finite = torch.ones((), dtype=torch.bool, device=device)
    for step in range(max_new_tokens):
        finite &= decoding.logits.amax(-1).isfinite().all()
        candidates, parents = continuations(growing, decoding.logits, step, 2 * beams)
        ends = rules.ends(candidates, step)
        finished = rules.finish(finished, candidates.only(ends & ~closed[:, None]), step)
        growing, parents = _grow(candidates.only(~ends), parents, beams)
        closed |= rules.close(growing, finished, step)
        order = (first + parents).flatten()
        # Synchronize once.
        done, moved = torch.stack([closed.all() | ~finite, (order != place).any()]).tolist()
        if done:  # at the last step nothing goes on
            break
        if moved:
            decoding.states = decoding.states.reorder(order)
        decoding.append(growing.ids[:, :, step].flatten())
    if not finite:
        raise NonFiniteError(DAMAGED)
    return _listed(finished, n_best, stop_ids)


def _grow(
    candidates: Hypotheses, parents: Int[Tensor, "rows n"], beams: int
) -> tuple[Hypotheses, Int[Tensor, "rows beams"]]:
    """The best candidates, and their parents, in an order that moves few states."""
    chosen = candidates.best(beams)
    chosen = chosen.gather(1, stay(parents.gather(1, chosen)))
    return candidates.take(chosen), parents.gather(1, chosen)


@dataclass(frozen=True)
class _Rules:
    """Conditions that end a continuation, and the search."""

    beams: int
    max_new_tokens: int
    stop_ids: Sequence[int]
    length_penalty: float
    early_stopping: EarlyStopping

    def __post_init__(self) -> None:
        if self.beams < 1:
            raise UserError(f"beams must be ≥ 1, not {self.beams}")
        if self.max_new_tokens < 1:
            raise UserError(f"the number of new tokens must be ≥ 1, not {self.max_new_tokens}")
        # Beyond, powers of lengths leave what a float64 can hold.
        if not -20 <= self.length_penalty <= 20:
            raise UserError(f"length penalty must lie in [-20, 20], not {self.length_penalty}")
        if self.early_stopping not in (True, False, "never"):
            raise UserError(f"early stopping is true, false or never, not {self.early_stopping!r}")

    def ends(self, candidates: Hypotheses, step: int) -> Bool[Tensor, "rows n"]:
        """Return the candidates that end."""
        tokens = candidates.ids[:, :, step]
        stops = torch.tensor(self.stop_ids, dtype=torch.long, device=tokens.device)
        return torch.isin(tokens, stops) | (step + 1 == self.max_new_tokens)

    def finish(self, finished: Hypotheses, ended: Hypotheses, step: int) -> Hypotheses:
        """The best of what was finished before and of the first candidates that have ended."""
        ids, log_probabilities, scores = (x[:, : self.beams] for x in ended)
        new = Hypotheses(ids, log_probabilities, self._score(scores, step + 1))
        both = finished.beside(new)
        return both.take(both.best(self.beams))

    def close(self, growing: Hypotheses, finished: Hypotheses, step: int) -> Bool[Tensor, " rows"]:
        """Rows whose finished continuations won't be bettered, or needn't be."""
        worst = finished.scores.amin(1)
        longest = self.early_stopping == "never" and self.length_penalty > 0
        best = self._score(growing.scores.amax(1), self.max_new_tokens if longest else step + 1)
        closed = best <= worst
        return closed | worst.isfinite() if self.early_stopping is True else closed

    def _score(self, log_probabilities: Tensor, length: int) -> Tensor:
        scores: Tensor = log_probabilities / length**self.length_penalty
        return scores


def _listed(finished: Hypotheses, n_best: int, stop_ids: Sequence[int]) -> list[list[Beam]]:
    """The best of each row, off the device."""
    return [
        [
            _beam(ids, log_probability, score, stop_ids)
            for ids, log_probability, score in zip(*row, strict=True)
            if score > float("-inf")
        ]
        for row in zip(*(x[:, :n_best].tolist() for x in finished), strict=True)
    ]


def _beam(ids: list[int], log_probability: float, score: float, stop_ids: Sequence[int]) -> Beam:
    ids = ids[: ids.index(-1)] if -1 in ids else ids
    stopped = ids[-1] in stop_ids
    return Beam(ids[:-1] if stopped else ids, log_probability, score, stopped)


# Texts


@dataclass(frozen=True)
class Continuation:
    """A prompt with a continuation that beam search found."""

    text: str
    log_probability: float
    """Of the continuation, what follows `stop_string` included."""
    score: float
    """The log-probability, over the number of new tokens to the power of the length penalty."""


def beam_search(
    run: Run,
    prompts: Sequence[str],
    *,
    num_beams: int,
    num_return_sequences: int = 1,
    max_new_tokens: int | None = None,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = "never",
    stop_string: str | None = None,
    raw: bool = False,
    precision: Precision = "float32",
) -> list[list[Continuation]]:
    """Return the `num_return_sequences` most probable texts of each prompt, the best first.

    They are answers or continuations, as in `generate`. `stop_string` truncates the text, not the
    search. `max_new_tokens` defaults to what fits the context.

    Raises:
        UserError: a prompt is empty, too long, or can't be encoded; or a setting is impossible.

    >>> [found] = regard.beam_search(
    ...     run, ["Where was Ada born?"], num_beams=3, num_return_sequences=2, max_new_tokens=4
    ... )
    >>> found[0].text
    'Rome'
    """
    with run.environment(precision).autocast():
        encoded = encode_prompts(run, prompts, run.device, max_new_tokens=max_new_tokens, raw=raw)
        found = search_ids(
            encoded.model,
            encoded.starts,
            beams=num_beams,
            n_best=num_return_sequences,
            max_new_tokens=encoded.max_new_tokens,
            stop_ids=encoded.stop_ids,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            device=run.device,
        )
    return [
        [
            Continuation(encoded.text(row, beam.ids, stop_string), beam.log_probability, beam.score)
            for beam in best
        ]
        for row, best in enumerate(found)
    ]
