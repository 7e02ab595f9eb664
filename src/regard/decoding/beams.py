"""Beam search: the most probable whole continuations, where greedy choice sees one token ahead.

The rules are those of Hugging Face's `generate` (transformers 5.23, `_beam_search`), which many
published numbers come from. At each step, of all ways to go on by one token, the 2·beams most
probable are looked at. Of the first `beams` of these, those that end are finished, and compete for
`beams` places by log-probability / length**penalty, where the length counts the new tokens, the
stop token included (Wu et al., 2016, eq. 14, has a kindred penalty). The best `beams` of those that
don't end go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.decoding.generate import Generator, prefill
from regard.decoding.hypotheses import Hypotheses, continuations, stay
from regard.decoding.sampling import DAMAGED
from regard.errors import NonFiniteError, UserError

EarlyStopping: TypeAlias = bool | Literal["never"]
"""When a prompt with `beams` finished continuations needs no more.

True: at once. False: when the best that goes on, scored at the length it has, isn't better than the
worst finished one. "never": when it couldn't become better; with a positive penalty, scored at the
greatest length.
"""


@dataclass(frozen=True)
class Beam:
    """A continuation that beam search found."""

    ids: list[int]
    """Without the stop token."""
    log_probability: float
    """Of all new tokens together, the stop token included if it was reached."""
    score: float
    """The log-probability / length**penalty."""
    stopped: bool
    """Whether the stop token was reached."""


@torch.inference_mode()
def beam_search(
    model: Generator,
    prompts: Sequence[Sequence[int]],
    *,
    beams: int,
    max_new_tokens: int,
    stop: int | None = None,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = "never",
    n_best: int = 1,
    device: torch.device | None = None,
) -> list[list[Beam]]:
    """The `n_best` continuations of each prompt, the best first; fewer if there aren't so many.

    Prompts may differ in length, and none may be empty; what is found for one doesn't depend on
    the others. A higher `length_penalty` favours longer continuations.

    Raises:
        UserError: `beams`, `n_best`, `max_new_tokens`, `length_penalty` or `early_stopping` is
            impossible.
        NonFiniteError: a logit is NaN or infinite.
    """
    rules = _Rules(beams, max_new_tokens, stop, length_penalty, early_stopping)
    if not 1 <= n_best <= beams:
        raise UserError(f"can't return {n_best} of {beams} beams; choose 1 to {beams}")
    logits, states = prefill(model, prompts, max_new_tokens, device)
    rows, device = len(prompts), logits.device
    place = torch.arange(rows * beams, device=device)
    first = place.view(rows, beams)[:, :1]
    logits, states = logits[place // beams], model.select(states, place // beams)
    growing = Hypotheses.empty(rows, beams, max_new_tokens, device)
    finished = Hypotheses.none(rows, beams, max_new_tokens, device)
    closed = torch.zeros(rows, dtype=torch.bool, device=device)
    finite = torch.ones((), dtype=torch.bool, device=device)
    for step in range(max_new_tokens):
        finite &= logits.amax(-1).isfinite().all()
        candidates, parents = continuations(growing, logits, step, 2 * beams)
        ends = rules.ends(candidates, step)
        finished = rules.finish(finished, candidates.only(ends & ~closed[:, None]), step)
        growing, parents = _grow(candidates.only(~ends), parents, beams)
        closed |= rules.close(growing, finished, step)
        order = (first + parents).flatten()
        # Asked together: a GPU stops for each question.
        done, moved = torch.stack([closed.all() | ~finite, (order != place).any()]).tolist()
        if done:  # at the last step nothing goes on
            break
        states = model.select(states, order) if moved else states
        logits, states = model.extend(growing.ids[:, :, step].reshape(-1, 1), states)
    if not finite:
        raise NonFiniteError(DAMAGED)
    return _listed(finished, n_best, stop)


def _grow(
    candidates: Hypotheses, parents: Int[Tensor, "rows n"], beams: int
) -> tuple[Hypotheses, Int[Tensor, "rows beams"]]:
    """The best candidates, and their parents, in an order that moves few states."""
    chosen = candidates.best(beams)
    chosen = chosen.gather(1, stay(parents.gather(1, chosen)))
    return candidates.take(chosen), parents.gather(1, chosen)


@dataclass(frozen=True)
class _Rules:
    """What ends a continuation, and what ends the search."""

    beams: int
    max_new_tokens: int
    stop: int | None
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
        """Which candidates don't go on."""
        stop = -1 if self.stop is None else self.stop
        return (candidates.ids[:, :, step] == stop) | (step + 1 == self.max_new_tokens)

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


def _listed(finished: Hypotheses, n_best: int, stop: int | None) -> list[list[Beam]]:
    """The best of each row, off the device."""
    return [
        [
            _beam(ids, log_probability, score, stop)
            for ids, log_probability, score in zip(*row, strict=True)
            if score > float("-inf")
        ]
        for row in zip(*(x[:, :n_best].tolist() for x in finished), strict=True)
    ]


def _beam(ids: list[int], log_probability: float, score: float, stop: int | None) -> Beam:
    ids = ids[: ids.index(-1)] if -1 in ids else ids
    stopped = ids[-1] == stop
    return Beam(ids[:-1] if stopped else ids, log_probability, score, stopped)
