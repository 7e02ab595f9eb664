"""The study receptive-field."""

from itertools import product

import numpy as np
import pytest
import torch

from regard.studies.structure.receptive_field import (
    field,
    paths,
    planted_pointers,
    random_sizes,
)


def test_paths_are_those_of_a_walk() -> None:
    pointers = torch.randint(5, (3, 2, 5), generator=torch.Generator().manual_seed(0))
    walked = torch.zeros(5, 5, dtype=torch.float64)
    for node in range(5):
        for turns in product(range(3), repeat=3):  # a head each layer, or the residual
            at = node
            for layer, turn in reversed(list(enumerate(turns))):
                at = at if turn == 2 else int(pointers[layer, turn, at])
            walked[node, at] += 1
    assert paths(pointers, "argmax").equal(walked)


def test_random_sizes_are_those_of_all_pointers() -> None:
    every = [torch.tensor(p).view(2, 1, 3) for p in product(range(3), repeat=6)]
    sizes = np.array([field(paths(pointers, "argmax")).numpy()[0] for pointers in every])
    mean, deviation = random_sizes(1, 2, 3)[-1]
    assert mean == pytest.approx(sizes.mean())
    assert deviation == pytest.approx(sizes.std())


@pytest.mark.parametrize(("heads", "layers"), [(1, 1), (1, 4), (2, 3), (2, 4), (3, 3)])
def test_planted_pointers_reach_each_input_by_one_path(heads: int, layers: int) -> None:
    n = (heads + 1) ** layers
    marks = paths(planted_pointers(heads, layers, n), "argmax")
    assert marks.equal(torch.ones(n, n, dtype=torch.float64))
