"""The logit lens, and the direct contributions of parts to a difference of logits.

The lens applies the model's final norm and head to the residual stream after each layer
(nostalgebraist, 2020, "Interpreting GPT: the logit lens"). A direct contribution is a part of the
last hidden state times the difference of two rows of the head, with the scale of norms frozen
(Elhage et al., 2021).

Shapes: n tokens, p parts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.attention.base import at_least_float32
from regard.drawing import color_bar, heat_map, panels
from regard.edits.activations import activations, ids_read, text_inputs
from regard.edits.metrics import LogitDifference
from regard.edits.page import Measured
from regard.edits.parts import Parts, parts_of, summed_stack
from regard.edits.sites import sites
from regard.edits.table import Rows
from regard.errors import UnsupportedError, UserError
from regard.models.builders import LanguageModel, MaskedLanguageModel, SequenceToSequence
from regard.models.heads import ScaledHead, SoftcappedHead
from regard.models.transformer import Transformer
from regard.runs.run import Run

LensModel: TypeAlias = LanguageModel | SequenceToSequence | MaskedLanguageModel
NAMED_CELLS = 2000
"""Largest number of cells of a figure with token labels; more would be illegible."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Contributions:
    """Direct contributions of parts to logit(right) − logit(wrong) after the last token."""

    right: str
    wrong: str
    names: tuple[str, ...]
    values: Float[np.ndarray, " p"]
    promoted: tuple[str, ...]
    """The token whose logit each part raises most."""
    difference: float
    """Logit difference of the model, before a soft cap if there is one."""
    capped: bool
    """Whether the model has a soft cap."""

    @property
    def remainder(self) -> float:
        """|Σ contributions − difference|."""
        return abs(float(self.values.sum()) - self.difference)

    def rows(self) -> list[dict[str, Any]]:
        """Return a record for each part, the largest contribution first."""
        return [
            {
                "part": self.names[i],
                "contribution": float(self.values[i]),
                "promotes": repr(self.promoted[i]),
            }
            for i in np.argsort(-np.abs(self.values), kind="stable")
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Lens(Measured):
    """Predictions from the residual stream of a text after each layer."""

    run: str
    tokens: tuple[str, ...]
    sites: tuple[str, ...]
    predictions: tuple[tuple[str, ...], ...]
    """Most probable token at each site after each token."""
    probabilities: Float[np.ndarray, "sites n"]
    """Probabilities of `predictions`."""
    final_token_probabilities: Float[np.ndarray, "sites n"]
    """Probabilities of the model's own predictions."""
    parts: Parts
    contributions: Contributions | None
    """None for a masked language model, whose head isn't linear."""
    norms: str
    """Placement of the norms in the stack, as text."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a record for each site: its prediction after the last token."""
        return [
            {
                "site": site,
                "prediction": repr(self.predictions[i][-1]),
                "probability": float(self.probabilities[i, -1]),
                "final_token_probability": float(self.final_token_probabilities[i, -1]),
            }
            for i, site in enumerate(self.sites)
        ]

    def tables(self) -> dict[str, Rows]:
        """Return the tables by caption."""
        found: dict[str, Rows] = {"Predictions after the last token": self.rows()}
        if (own := self.contributions) is not None:
            found[f"Contributions to the logit of {own.right!r} − that of {own.wrong!r}"] = (
                own.rows()
            )
        return found

    def lines(self) -> list[str]:
        """Return notes on the method, as text."""
        found = [
            "each cell: the token that the head predicts from the residual stream there, and its "
            "probability; final token probability: the probability of the model's own prediction",
            f"norms: {self.norms}, held at the scale of the run for the parts; their biases are "
            "parts",
            f"remainders: Σ heads + bias − output of attention, up to "
            f"{self.parts.remainder_of_layers:.1e}; Σ parts − hidden state, up to "
            f"{self.parts.remainder:.1e}",
        ]
        if (own := self.contributions) is None:
            return [*found, "the head of an encoder isn't linear: no contributions to logits"]
        cap = ", before the soft cap" if own.capped else ""
        return [
            *found,
            f"logit difference{cap}: {own.difference:.3f}; Σ contributions − difference: "
            f"{own.remainder:.1e}",
        ]

    def figure(self) -> Figure:
        """Return the predictions of sites × tokens, shaded by their probability."""
        shape = self.probabilities.shape
        height, width = 1.2 + 0.25 * shape[0], 2.4 + 0.6 * shape[1]
        with panels(height=min(height, 40), width=min(width, 60)) as (figure, (axes,)):
            heat_map(axes, self.probabilities)
            axes.set_yticks(range(shape[0]), self.sites, fontsize=7)
            axes.set_xticks(range(shape[1]), self.tokens, fontsize=7, rotation=90, parse_math=False)
            if self.probabilities.size <= NAMED_CELLS:
                for row, column in np.ndindex(shape):
                    token = self.predictions[row][column]
                    axes.text(
                        column, row, token, fontsize=6, ha="center", va="center", parse_math=False
                    )
            color_bar(figure, [axes], strongest=1.0, signed=False, label="probability")
        return figure


def lens(
    run: Run, text: str, second: str | None = None, *, metric: LogitDifference | None = None
) -> Lens:
    """Return predictions from the residual stream of a text, and contributions of its parts.

    `second` is the target of an encoder–decoder (the lens applies to its decoder), or the second
    text of a pair. Without a metric, contributions are to the logits of the two most probable next
    tokens. The scale of norms is frozen (Elhage et al., 2021, "A mathematical framework for
    transformer circuits").

    Raises:
        UserError: the run doesn't predict tokens, or a text can't be read.
        UnsupportedError: the model has no residual stream, or no linear head for the metric.

    >>> lens = regard.lens(run, "Where was Ada born?")
    >>> lens.sites
    ('decoder.embedding', 'decoder.0.residual.feedforward', 'decoder.1.residual.feedforward')
    >>> lens.predictions[-1][-1]  # after the last layer and token
    'Rome'
    """
    model = run.model
    if not isinstance(model, LensModel):
        raise UserError(f"{run.path}: the lens needs a model that predicts tokens")
    name, stack = summed_stack(model)
    linear = not isinstance(model, MaskedLanguageModel)
    if metric is not None and not linear:
        raise UnsupportedError(
            "metric: the head of an encoder isn't linear, so parts have no contributions to "
            "logits; leave metric out"
        )
    inputs = text_inputs(run, text, second)[-1]
    names = _residuals(name, stack)
    found = activations(run, inputs, [site for site in sites(run) if site.name in names])
    final = _probabilities(model, stack, found[names[-1]])
    each = [_reading(_probabilities(model, stack, found[one]), final) for one in names]
    parts, ids = parts_of(model, inputs), None
    if linear:
        right, wrong = final[-1].topk(2).indices.tolist()
        ids = metric.for_pairs(1, run.tokenizer)[0] if metric else (right, wrong)
    return Lens(
        run=run.path.name,
        tokens=_decoded(run, ids_read(run, inputs)),
        sites=tuple(names),
        predictions=tuple(_decoded(run, one.predictions) for one in each),
        probabilities=np.stack([one.probabilities for one in each]),
        final_token_probabilities=np.stack([one.final_token_probabilities for one in each]),
        parts=parts,
        contributions=None if ids is None else _contributions(run, parts, ids),
        norms=_norms(stack),
    )


class _Reading(NamedTuple):
    predictions: list[int]
    probabilities: Float[np.ndarray, " n"]
    final_token_probabilities: Float[np.ndarray, " n"]


def _reading(
    found: Float[Tensor, "n vocabulary"], final: Float[Tensor, "n vocabulary"]
) -> _Reading:
    """Return the most probable tokens at a site, from its probabilities and the model's."""
    best, own = found.max(-1), found.gather(-1, final.argmax(-1, keepdim=True))[:, 0]
    return _Reading(best.indices.tolist(), best.values.cpu().numpy(), own.cpu().numpy())


def _residuals(name: str, stack: Transformer) -> list[str]:
    """Return the sites of the lens: the embedding, and the residual stream after each layer."""
    layers = range(len(stack._layers()))
    return [f"{name}.embedding", *(f"{name}.{i}.residual.feedforward" for i in layers)]


@torch.no_grad()
def _probabilities(
    model: LensModel, stack: Transformer, x: Float[Tensor, "1 n d"]
) -> Float[Tensor, "n vocabulary"]:
    """Return the probabilities of tokens predicted from a residual stream."""
    logits: Tensor = model.head(stack._finish(x))[0]
    return at_least_float32(logits).softmax(-1)


def _decoded(run: Run, ids: Iterable[int]) -> tuple[str, ...]:
    return tuple(run.tokenizer.token_text(int(i)) for i in ids)


def _norms(stack: Transformer) -> str:
    """Return the placement of norms in a stack, as text."""
    if not stack.norm_first:
        return "after each sum, so that they scale all earlier parts"
    if stack._layers()[0].norm_attention_out is not None:
        return "before and after each part, and after the last layer"
    return "before each part and after the last layer"


@torch.no_grad()
def _contributions(run: Run, parts: Parts, ids: tuple[int, int]) -> Contributions:
    """Return the contributions of the last hidden state's parts to the logits of two tokens."""
    head = run.model.head
    assert isinstance(head, nn.Linear)
    capped = isinstance(head, SoftcappedHead)
    scale = head.in_features**-0.5 if isinstance(head, ScaledHead) else 1.0
    last = parts.values[:, -1]
    names, values = parts.names, last @ _gap(head.weight.double(), ids) * scale
    promoted = (last.to(head.weight) @ head.weight.T).argmax(-1).tolist()
    if head.bias is not None:
        names = (*names, "head.bias")
        values = torch.cat([values, _gap(head.bias.double(), ids)[None]])
        promoted.append(int(head.bias.argmax()))
    whole = parts.whole[-1].to(head.weight)
    logits = nn.Linear.forward(head, whole) if capped else head(whole)
    right, wrong = _decoded(run, ids)
    return Contributions(
        right=right,
        wrong=wrong,
        names=names,
        values=values.cpu().numpy(),
        promoted=_decoded(run, promoted),
        difference=float(_gap(logits.double(), ids)),
        capped=capped,
    )


def _gap(x: Float[Tensor, "vocabulary *d"], ids: tuple[int, int]) -> Float[Tensor, "*d"]:
    """Return the difference of the entries of two tokens."""
    return x[ids[0]] - x[ids[1]]
