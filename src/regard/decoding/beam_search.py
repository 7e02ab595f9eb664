"""Beam search: probable continuations as a whole, while greedy decoding looks one token ahead.

The rules are those of Hugging Face's `generate` (transformers 5.23, `_beam_search`), which many
published numbers come from. At each step, the 2·beams most probable extensions by one token are
considered. Of the first `beams` of these, those that end are finished, and compete for `beams`
places by log-probability / length**penalty, where the length counts the new tokens, including the
stop token (Wu et al., 2016, eq. 14, has a similar penalty). The best `beams` that don't end are
extended at the next step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.base import at_least_float32
from regard.decoding.generate import DAMAGED, Decoding, Generator, encode_prompts
from regard.environment import Precision
from regard.errors import NonFiniteError, UserError
from regard.runs.run import Run

EarlyStopping: TypeAlias = bool | Literal["never"]
"""When the search for a prompt with `beams` finished continuations stops.

True: at once. False: when the best unfinished continuation, scored at its current length, isn't
better than the worst finished one. "never": when it can't become better; with a positive penalty,
it is scored at the greatest length.
"""


# Hypotheses: continuations of many prompts, as tensors


class Hypotheses(NamedTuple):
    """n continuations of each row's prompt. Places without one have a score of −∞."""

    ids: Int[Tensor, "rows n steps"]
    """−1 after the last token."""
    log_probabilities: Float[Tensor, "rows n"]
    """In float64, in which sums over a thousand tokens lose no accuracy that matters."""
    scores: Float[Tensor, "rows n"]
    """Scores for the ranking."""

    @staticmethod
    def none(rows: int, n: int, steps: int, device: torch.device) -> "Hypotheses":
        """Return n places without continuations."""
        ids = torch.full((rows, n, steps), -1, device=device)
        scores = torch.full((rows, n), float("-inf"), dtype=torch.float64, device=device)
        return Hypotheses(ids, scores, scores)

    @staticmethod
    def empty(rows: int, n: int, steps: int, device: torch.device) -> "Hypotheses":
        """Return one empty continuation of each row."""
        none = Hypotheses.none(rows, n, steps, device)
        certain = none.scores.index_fill(1, none.ids.new_zeros(1), 0.0)
        return Hypotheses(none.ids, certain, certain)

    def take(self, places: Int[Tensor, "rows m"]) -> "Hypotheses":
        """Return the continuations at the given places of each row, in that order."""
        ids, log_probabilities, scores = self
        whole = places[:, :, None].expand(-1, -1, ids.shape[2])
        return Hypotheses(
            ids.gather(1, whole), log_probabilities.gather(1, places), scores.gather(1, places)
        )

    def only(self, wanted: Bool[Tensor, "rows n"]) -> "Hypotheses":
        """Keep the given continuations at their places; the others get a score of −∞."""
        return self._replace(scores=self.scores.masked_fill(~wanted, float("-inf")))

    def best(self, n: int) -> Int[Tensor, "rows n"]:
        """Return the places of the n best, the best first; ties keep their order."""
        return self.scores.sort(dim=1, descending=True, stable=True).indices[:, :n]

    def beside(self, others: "Hypotheses") -> "Hypotheses":
        """Concatenate with others of the same rows."""
        return Hypotheses(*(torch.cat(pair, 1) for pair in zip(self, others, strict=True)))


def continuations(
    growing: Hypotheses, logits: Float[Tensor, "rows_n vocabulary"], step: int, most: int
) -> tuple[Hypotheses, Int[Tensor, "rows most"]]:
    """Return the most probable extensions by token `step`, the best first.

    Returns:
        The continuations, at most `most`, and the place of the hypothesis that each one extends.
    """
    # The best of all hypotheses are among the best of each.
    top, tokens = logits.topk(min(most, logits.shape[-1]), -1)
    total = at_least_float32(logits).logsumexp(-1, keepdim=True)
    rows, n = growing.scores.shape
    gained = (top.double() - total.double()).view(rows, n, -1)
    scores = (growing.scores[:, :, None] + gained).flatten(1)
    scores, chosen = scores.topk(min(most, scores.shape[1]), 1)
    parents = chosen // gained.shape[2]
    grown = growing.take(parents)
    grown.ids[:, :, step] = tokens.view(rows, -1).gather(1, chosen)
    return Hypotheses(grown.ids, scores, scores), parents


def stay(parents: Int[Tensor, "rows n"]) -> Int[Tensor, "rows n"]:
    """Return an order in which as many hypotheses as possible have the places of their parents.

    It moves the fewest decoding states. The first child of a parent gets its place; other children
    get the places of parents without children.
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
    """New tokens, without the stop token."""
    log_probability: float
    """Sum over all new tokens, including the stop token, in nats."""
    score: float
    """The log-probability / length**penalty."""
    stop_id: int | None = None
    """The stop id that was reached, if any."""

    @property
    def stopped(self) -> bool:
        """Whether one of the stop ids was reached."""
        return self.stop_id is not None


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

    Prompts may differ in length, and none may be empty; the results of one don't depend on the
    others. A higher `length_penalty` favors longer continuations.

    Raises:
        UserError: `beams`, `n_best`, `max_new_tokens`, `length_penalty` or `early_stopping` is
            out of range.
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
        if done:  # always at the last step
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
    """Return the best candidates and their parents, in an order that moves few states."""
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
        # Beyond, powers of lengths overflow float64.
        if not -20 <= self.length_penalty <= 20:
            raise UserError(f"length penalty must lie in [-20, 20], not {self.length_penalty}")
        if not (isinstance(self.early_stopping, bool) or self.early_stopping == "never"):
            raise UserError(f"early stopping is true, false or never, not {self.early_stopping!r}")

    def ends(self, candidates: Hypotheses, step: int) -> Bool[Tensor, "rows n"]:
        """Return the candidates that end."""
        tokens = candidates.ids[:, :, step]
        stops = torch.tensor(self.stop_ids, dtype=torch.long, device=tokens.device)
        return torch.isin(tokens, stops) | (step + 1 == self.max_new_tokens)

    def finish(self, finished: Hypotheses, ended: Hypotheses, step: int) -> Hypotheses:
        """Return the best of the finished continuations and of newly ended candidates."""
        ids, log_probabilities, scores = (x[:, : self.beams] for x in ended)
        new = Hypotheses(ids, log_probabilities, self._score(scores, step + 1))
        both = finished.beside(new)
        return both.take(both.best(self.beams))

    def close(self, growing: Hypotheses, finished: Hypotheses, step: int) -> Bool[Tensor, " rows"]:
        """Return the rows whose search stops, by the rule `early_stopping`."""
        worst = finished.scores.amin(1)
        longest = self.early_stopping == "never" and self.length_penalty > 0
        best = self._score(growing.scores.amax(1), self.max_new_tokens if longest else step + 1)
        closed = best <= worst
        return closed | worst.isfinite() if self.early_stopping is True else closed

    def _score(self, log_probabilities: Tensor, length: int) -> Tensor:
        scores: Tensor = log_probabilities / float(length) ** self.length_penalty
        return scores


def _listed(finished: Hypotheses, n_best: int, stop_ids: Sequence[int]) -> list[list[Beam]]:
    """Return the best of each row, as Python numbers."""
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
    if ids[-1] in stop_ids:
        return Beam(ids[:-1], log_probability, score, ids[-1])
    return Beam(ids, log_probability, score)


# Texts


@dataclass(frozen=True)
class Continuation:
    """A prompt with a continuation that beam search found."""

    text: str
    log_probability: float
    """Log-probability of the continuation, including the text after `stop_string`, in nats."""
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
    search. By default, `max_new_tokens` fills the context of the longest prompt, for all rows.

    Raises:
        UserError: a prompt is empty, too long, or can't be encoded; or a setting is out of range.

    >>> [found] = regard.beam_search(
    ...     run, ["Where was Ada born?"], num_beams=3, num_return_sequences=2, max_new_tokens=4
    ... )
    >>> found[0].text
    'Rome'
    """
    with run.environment(precision).autocast():
        encoded = encode_prompts(run, prompts, max_new_tokens=max_new_tokens, raw=raw)
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
            Continuation(
                encoded.text(row, beam.ids, stop_string, beam.stop_id),
                beam.log_probability,
                beam.score,
            )
            for beam in best
        ]
        for row, best in enumerate(found)
    ]
