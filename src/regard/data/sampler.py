"""The batch of each step: a pure function of seed and step, so that resuming is exact.

Any number of processes that share the seed see the same global batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from regard.data.batch import Batch, Dataset

POOL = 16
"""Largest number of batches whose rows are drawn together and sorted by length."""


@dataclass(frozen=True)
class WeightedDataset:
    """A dataset, and the share of the batches that it fills."""

    dataset: Dataset
    share: float = 1.0
    batch_size: int | None = None
    """Examples of a step; default: the sampler's."""


class Sampler:
    """The batches of training. Epochs of a dataset end with a batch that may be smaller."""

    def __init__(
        self,
        datasets: Sequence[WeightedDataset],
        *,
        batch_size: int,
        seed: int,
        steps: int | None = None,
        epochs: int | None = None,
        shuffle: bool = True,
    ) -> None:
        """`epochs` counts passes over the dataset with the largest share."""
        self._datasets = [one.dataset for one in datasets]
        self._batch_sizes = [one.batch_size or batch_size for one in datasets]
        self._seed, self._shuffle = seed, shuffle
        shares = np.array([one.share for one in datasets])
        shares = shares / shares.sum()
        if steps is None:
            main = int(shares.argmax())
            steps = ceil((epochs or 1) * self._batches_per_epoch(main) / shares[main])
        self.steps = steps
        self._turns, self._counts = _interleave(shares, steps)
        self._orders: dict[int, tuple[int, np.ndarray]] = {}

    def batch(self, step: int) -> Batch:
        """Return the batch of a step in 0..steps-1."""
        turn = int(self._turns[step])
        epoch, part = divmod(int(self._counts[step]), self._batches_per_epoch(turn))
        size, dataset = self._batch_sizes[turn], self._datasets[turn]
        rows = self._order(turn, epoch)[part * size : (part + 1) * size]
        rng = np.random.default_rng([self._seed, 1, step])
        return dataset.collate([dataset.example(int(row), rng) for row in rows])

    def rows_before(self, step: int) -> int:
        """Return the number of rows of all steps before one."""
        rows = 0
        for turn, batches in enumerate(np.bincount(self._turns[:step])):
            epochs, part = divmod(int(batches), self._batches_per_epoch(turn))
            rows += epochs * len(self._datasets[turn]) + part * self._batch_sizes[turn]
        return rows

    def _batches_per_epoch(self, turn: int) -> int:
        return ceil(len(self._datasets[turn]) / self._batch_sizes[turn])

    def _order(self, turn: int, epoch: int) -> np.ndarray:
        """The order of a dataset's examples; that of its last epoch is kept."""
        if turn not in self._orders or self._orders[turn][0] != epoch:
            self._orders[turn] = epoch, self._new_order(turn, epoch)
        return self._orders[turn][1]

    def _new_order(self, turn: int, epoch: int) -> np.ndarray:
        dataset = self._datasets[turn]
        if not self._shuffle:
            return np.arange(len(dataset))
        rng = np.random.default_rng([self._seed, 2, turn, epoch])
        lengths = np.array([dataset.length(index) for index in range(len(dataset))])
        return _shuffled(lengths, self._batch_sizes[turn], rng)


def sequential_batches(dataset: Dataset, batch_size: int, *, seed: int = 0) -> Iterator[Batch]:
    """Yield all examples in their order, in batches; `seed` draws what is random in them."""
    datasets = [WeightedDataset(dataset)]
    sampler = Sampler(datasets, batch_size=batch_size, seed=seed, epochs=1, shuffle=False)
    return (sampler.batch(step) for step in range(sampler.steps))


def _shuffled(lengths: np.ndarray, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """An order of all examples in which those of a batch are of similar length.

    They are drawn into pools and sorted there. Of few examples there are four pools at least, or
    none is sorted: a batch is to hold others in each epoch. A smaller batch comes last.
    """
    n = len(lengths)
    order = rng.permutation(n)
    full = n - n % batch_size
    size = batch_size * min(POOL, max(n // (4 * batch_size), 1))
    for start in range(0, full, size):
        pool = order[start : min(start + size, full)]
        if size > batch_size:
            pool[:] = pool[np.argsort(lengths[pool], kind="stable")]
    batches = rng.permutation(order[:full].reshape(-1, batch_size))
    return np.concatenate([batches.ravel(), order[full:]])


def _interleave(shares: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Whose turn each step is, spread evenly, and how many turns that dataset had before.

    The dataset that is farthest behind its share goes next.
    """
    turns = np.empty(steps, dtype=np.int64)
    counts = np.empty(steps, dtype=np.int64)
    had = np.zeros(len(shares), dtype=np.int64)
    for step in range(steps):
        turn = int((shares * (step + 1) - had).argmax())
        turns[step], counts[step] = turn, had[turn]
        had[turn] += 1
    return turns, counts
