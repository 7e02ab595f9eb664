"""Dropout whose mask is a function of seed, step, layer and row.

Padding, micro-batches and the number of processes don't change the mask of a row. It is a hash of
coordinates, as in counter-based generators (Salmon et al., 2011), not the next numbers of a stream,
so compiled code and GPUs draw the same.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

_COORDINATES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_MULTIPLIERS = (0x7FEB352D, 0x846CA68B)
"""Multipliers of lowbias32 (Wellons, 2018), whose bias is 0.17 bits in 10⁻³."""

CACHED = 1 << 16
"""Number of hashes that are computed at once on a CPU: they fit the cache."""


class Dropout(nn.Dropout):
    """`torch.nn.Dropout`, with masks from the keys of rows if they are set.

    A module is used once in a forward pass: a second tensor would have the same mask. The tensor
    may have two rows per key, such as questions and then their documents.
    """

    row_keys: Int[Tensor, "rows 2"] | None = None

    def forward(self, x: Float[Tensor, "rows *dims"]) -> Float[Tensor, "rows *dims"]:
        """Return x in evaluation; in training x/(1 - p), or 0 with probability p."""
        if not self.training or self.p == 0:
            return x
        if self.row_keys is None:
            return super().forward(x)
        if self.p == 1:
            return x * 0.0
        keys = self.row_keys
        if len(x) == 2 * len(keys):
            keys = torch.cat([keys, keys ^ _as_int32(_COORDINATES[0])])
        return x * dropout_mask(keys, x.shape[1:], self.p, x.dtype)


def dropout_mask(
    row_keys: Int[Tensor, "rows 2"], shape: Sequence[int], p: float, dtype: torch.dtype
) -> Float[Tensor, "rows *shape"]:
    """Return 0 with probability p, to a multiple of 2⁻¹⁶, and else a constant: the mean is 1.

    A 32-bit hash decides two adjacent elements of a row.
    """
    dropped = min(round(p * 2**16), 2**16 - 1)
    *before, n = shape
    index = _index((*before, (n + 1) // 2), row_keys.device)
    columns = row_keys.view(*row_keys.shape, *[1] * len(shape))
    mask = torch.empty(len(columns), *shape, dtype=dtype, device=index.device)
    rows = len(columns)
    if not (index.is_cuda or torch.compiler.is_compiling()):
        rows = max(CACHED // max(index.numel(), 1), 1)
    for some, keys in zip(mask.split(rows), columns.split(rows), strict=True):
        mixed = _shift_xor((index ^ keys[:, 0]).mul_(_as_int32(_MULTIPLIERS[0])), 15)
        mixed = _shift_xor(mixed.add_(keys[:, 1]).mul_(_as_int32(_MULTIPLIERS[1])), 16)
        # Booleans would be slow to make and to convert.
        kept = mixed.view(torch.int16)[..., :n].ge_(dropped - 2**15)
        some.copy_(kept).mul_(2**16 / (2**16 - dropped))
    return mask


def _index(shape: Sequence[int], device: torch.device) -> Int[Tensor, "1 *shape"]:
    """Return a number for each place of a row, independent of padding."""
    index = torch.zeros((), dtype=torch.int32, device=device)
    for axis, n in enumerate(shape):
        steps = torch.arange(n, dtype=torch.int32, device=device)
        steps = steps * _as_int32(_COORDINATES[axis])
        index = index[..., None] + steps
    return index[None]


def _shift_xor(x: Int[Tensor, "*dims"], bits: int) -> Int[Tensor, "*dims"]:
    """Return x ^ (x >> bits) of unsigned integers, in place."""
    return x.bitwise_xor_((x >> bits).bitwise_and_((1 << (32 - bits)) - 1))


def _as_int32(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


def dropouts(model: nn.Module) -> list[Dropout]:
    """Return the dropout modules of a model with p > 0."""
    return [module for module in model.modules() if isinstance(module, Dropout) and module.p > 0]


def make_row_keys(
    modules: int, seed: int, step: int, rows: Int[Tensor, " rows"]
) -> Int[Tensor, "modules rows 2"]:
    """Return the keys of a number of modules for rows of a step's batch, given by their indices."""
    start = np.random.SeedSequence([seed, 4, step]).generate_state(1, np.uint64)
    numbers = rows.numpy().astype(np.uint64)
    sites = np.arange(modules, dtype=np.uint64)[:, None] << np.uint64(32)
    keys = torch.from_numpy(_splitmix(start + (sites | numbers)).view(np.int32))
    return keys.view(modules, len(rows), 2)


def set_row_keys(modules: Sequence[Dropout], keys: Int[Tensor, "modules rows 2"]) -> None:
    """Set the keys of modules for the rows of a batch."""
    for module, own in zip(modules, keys, strict=True):
        module.row_keys = own


def release_rows(modules: Sequence[Dropout]) -> None:
    """Remove the keys: modules draw from PyTorch's generator again."""
    for module in modules:
        module.row_keys = None


def _splitmix(x: np.ndarray) -> np.ndarray:
    """Return the hash of SplitMix64 (Steele et al., 2014) of each element."""
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed
