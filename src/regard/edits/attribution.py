"""Attribution: effects of sites on a metric, estimated by gradients.

    Â(s) = (a_clean − a_corrupt) · ∂m/∂a

with the gradient at the corrupt text (Nanda, 2023; Kramár et al., 2024, arXiv:2403.00745), or the
mean of gradients on the straight line between the embeddings of both texts: integrated gradients
(Sundararajan et al., 2017, arXiv:1703.01365), for all sites (EAP-IG: Hanna et al., 2024,
arXiv:2403.17806). With enough steps, the attributions of all embeddings sum to the effect of
patching all of them: m(clean) − m(corrupt), unless layers also look up values by token.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.edits.activations import Recorder
from regard.edits.found import Cell
from regard.edits.patching import Pair, mask_of, metric_of
from regard.edits.sites import Site
from regard.edits.sites import sites as all_sites
from regard.edits.tokens import Hook
from regard.runs.run import Run


def attributed(
    cells: Sequence[Cell], clean: Recorder, corrupt: Recorder, slopes: Mapping[str, Tensor]
) -> np.ndarray:
    """Return (a_clean − a_corrupt)·∂m/∂a of each cell, from the gradients by place."""
    products = {
        place: ((clean.tensors[place] - corrupt.tensors[place]).detach() * slope)[0]
        for place, slope in slopes.items()
    }
    found = []
    for cell in cells:
        product = products[cell.site.place]
        mask = mask_of(cell, product[None]).expand_as(product)
        found.append(float(product[mask].sum()))
    return np.array(found)


def slopes_of(metric: Tensor, recorder: Recorder) -> dict[str, Tensor]:
    """Return the gradient of a metric with respect to the tensor of each recorded place."""
    steps = [(place, i) for place, by_token in recorder.steps.items() for i in sorted(by_token)]
    tensors = [recorder.steps[place][i] for place, i in steps]
    slopes = torch.autograd.grad(metric, tensors, materialize_grads=True, allow_unused=True)
    return {
        place: torch.cat([x for (its, _), x in zip(steps, slopes, strict=True) if its == place], -2)
        for place in recorder.steps
    }


def integrated_slopes(run: Run, pair: Pair, sites: Sequence[Site], steps: int) -> dict[str, Tensor]:
    """Return gradients by place, averaged over midpoints of steps between both embeddings."""
    embeddings = [site for site in all_sites(run) if site.part == "embedding"]
    clean, corrupt = (_tensors(run, pair, embeddings, inputs) for inputs in pair[:2])
    found: list[dict[str, Tensor]] = []
    for step in range(steps):
        recorder, share = Recorder(sites), (step + 0.5) / steps
        between = {place: _at(torch.lerp(x, clean[place], share)) for place, x in corrupt.items()}
        with torch.enable_grad():
            metric = metric_of(run, pair.corrupt, pair.measure, between, recorder.hooks)[0]
        found.append(slopes_of(metric, recorder))
    return {place: torch.stack([one[place] for one in found]).mean(0) for place in found[0]}


@torch.no_grad()
def _tensors(
    run: Run, pair: Pair, sites: Sequence[Site], inputs: Sequence[Tensor]
) -> dict[str, Tensor]:
    recorder = Recorder(sites)
    metric_of(run, inputs, pair.measure, recorder.hooks)
    return recorder.tensors


def _at(value: Tensor) -> Hook:
    """Return a hook that replaces a tensor by a value that requires a gradient."""
    leaf = value.requires_grad_()
    return lambda *_: leaf
