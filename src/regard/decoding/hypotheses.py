"""Continuations of many prompts side by side, as beam search keeps them: tensors, no objects."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Hypotheses(NamedTuple):
    """n continuations of each row's prompt. A score of minus infinity says that there is none."""

    ids: Int[Tensor, "rows n steps"]
    """−1 behind the last token."""
    log_probabilities: Float[Tensor, "rows n"]
    """Float64, in which a thousand tokens add up without harm."""
    scores: Float[Tensor, "rows n"]
    """What they are ranked by."""

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
        """The wanted ones, where they stand; there are no others any more."""
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
