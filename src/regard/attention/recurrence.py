"""Linear recurrences of a matrix with gates, computed in chunks.

    delta rule: S_t = (I − k_t y_tᵀ) D_t S_(t−1) + k_t u_tᵀ,   o_t = q_tᵀ S_t,   D_t = diag(e^(g_t))
    in general: S_t = (D_t − x_t y_tᵀ) S_(t−1) + k_t u_tᵀ

A token scales the channels of the state by D_t, erases the value that y_t reads, and writes u_t at
k_t. The delta rule erases at k, where it writes, and reads y = b ⊙ k in the decayed state. In
general, a token erases at x the value that y reads in the previous state. Erasing is optional.

Within a chunk that starts from S, with P(i, j) = D_i … D_(j+1), the change at k is w (Yang et al.,
2024, arXiv:2406.06484, §3.2; arXiv:2412.06464, §3.3, with decays):

    w_i = u_i − y_iᵀ P(i, 0) S − Σ_(j<i) y_iᵀ P(i, j) k_j w_jᵀ
    o_i = q_iᵀ P(i, 0) S + Σ_(j≤i) q_iᵀ P(i, j) k_j w_jᵀ

and in general, r is erased at x:

    r_i = y_iᵀ P(i−1, 0) S + Σ_(j<i) y_iᵀ P(i−1, j) (k_j u_jᵀ − x_j r_jᵀ)
    o_i = q_iᵀ P(i, 0) S + Σ_(j≤i) q_iᵀ P(i, j) (k_j u_jᵀ − x_j r_jᵀ)

The first line of each pair is a unit triangular system, solved for all chunks at once, for any S:
w or r of a chunk is an affine map of the state before it. Only these maps are applied one after the
other, to compute the states. Long rows are processed in segments whose tensors fit a CPU's cache.

Decays are multiplied, or their logarithms added, but never divided or subtracted: products may
underflow to zero, and e^(−∞) is a restart.

Letters in shapes: b rows, g states, r queries that read a state, c chunks of l tokens, d the width
of a key, e of a value; decays have width 1 (one for all channels) or d.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


class Update(NamedTuple):
    """Update of the state by each token."""

    key: Float[Tensor, "b g n d"]
    """k, the key at which it writes."""
    value: Float[Tensor, "b g n e"]
    """u, the value that it writes."""
    log_decay: Float[Tensor, "b g n #d"]
    """g ≤ 0."""
    read: Float[Tensor, "b g n d"] | None = None
    """y, the vector that reads the value to erase; None: nothing is erased."""
    erased: Float[Tensor, "b g n d"] | None = None
    """x, the key at which it erases; None for the delta rule."""

    def skipping(self, hidden: Bool[Tensor, "b n"]) -> "Update":
        """Return the update without hidden tokens, which leave the state as it is."""
        gone = hidden[:, None, :, None]
        return self.each(lambda x: x.masked_fill(gone, 0.0))

    def restarting(self, first: Bool[Tensor, "b n"]) -> "Update":
        """Return the update with an empty state before the given tokens."""
        at = first[:, None, :, None]
        read = None if self.read is None else self.read.masked_fill(at, 0.0)
        return self._replace(log_decay=self.log_decay.masked_fill(at, float("-inf")), read=read)

    def split(self, length: int) -> "Iterator[Update]":
        """Yield segments of `length` tokens; the last one may be shorter."""
        fields = [repeat(None) if x is None else x.split(length, -2) for x in self]
        return (Update(*segment) for segment in zip(*fields, strict=False))

    def each(self, change: Callable[[Tensor], Tensor]) -> "Update":
        """Return the update with each tensor changed."""
        key, value, log_decay = map(change, self[:3])
        read, erased = (None if x is None else change(x) for x in self[3:])
        return Update(key, value, log_decay, read, erased)

    def step(
        self, query: Float[Tensor, "b g r d"], state: Float[Tensor, "b g d e"]
    ) -> tuple[Float[Tensor, "b g r e"], Float[Tensor, "b g d e"]]:
        """Return the output of one token and the new state, by the formula of the recurrence."""
        key, value, log_decay, read, erased = self
        decayed = log_decay.mT.exp() * state
        if read is not None and erased is None:
            value = value - read @ decayed
        new = torch.addcmul(decayed, key.mT, value)
        if read is not None and erased is not None:
            new = torch.addcmul(new, erased.mT, read @ state, value=-1)
        return query @ new, new


def scan(
    query: Float[Tensor, "b g r n d"],
    update: Update,
    state: Float[Tensor, "b g d e"],
    *,
    length: int,
) -> tuple[Float[Tensor, "b g r n e"], Float[Tensor, "b g d e"]]:
    """Return the output of each query, after the update by its token, and the last state.

    `length` is the number of tokens in a chunk.
    """
    length = min(length, query.shape[3])
    segment, outputs = _segment(query, length), []
    for read, part in zip(query.split(segment, 3), update.split(segment), strict=True):
        out, state = _scan_segment(read, part, state, length)
        outputs.append(out)
    return torch.cat(outputs, 3), state


CACHED = 1 << 18
"""Size of each tensor of a segment, in numbers: about eight tensors share a CPU's cache."""


def _segment(query: Float[Tensor, "b g r n d"], length: int) -> int:
    """Return the number of tokens per segment: as many as fit a CPU's cache, all on a GPU."""
    batch, states, _, n, d = query.shape
    if query.is_cuda:
        return n
    return max(CACHED // max(batch * states * d * length, 1), 1) * length


def _scan_segment(
    query: Float[Tensor, "b g r n d"],
    update: Update,
    state: Float[Tensor, "b g d e"],
    length: int,
) -> tuple[Float[Tensor, "b g r n e"], Float[Tensor, "b g d e"]]:
    """Return `scan` of one segment, with all its chunks computed in parallel."""
    n = query.shape[3]
    reads = _chunks(query, length).transpose(2, 3)
    chunked = update.each(lambda x: _chunks(x, length))
    since = chunked.log_decay.cumsum(-2).exp()
    rest = _rest(chunked.log_decay).exp()
    within = _linear
    if update.read is not None:
        within = _replacing if update.erased is None else _erasing
    inside, starts, last = within(reads, chunked, since, rest, state)
    out = inside + _each(reads * since[:, :, :, None], starts)
    return out.transpose(2, 3).flatten(3, 4)[:, :, :, :n], last


Parts: TypeAlias = tuple[
    Float[Tensor, "b g c r l e"], Float[Tensor, "b g c d e"], Float[Tensor, "b g d e"]
]
"""Sums of queries over their own chunk, the state before each chunk, and after the last."""


def _linear(
    query: Float[Tensor, "b g c r l d"],
    update: Update,
    since: Float[Tensor, "b g c l #d"],
    rest: Float[Tensor, "b g c l #d"],
    state: Float[Tensor, "b g d e"],
) -> Parts:
    """Compute chunks of tokens that only decay and write.

    `since` decays from the start of the chunk to after each token, `rest` from there to the end.
    """
    key, value = update.key, update.value
    scores = _scores(query, key[:, :, :, None], update.log_decay)[..., 0, :, :]
    added = (key * rest).mT @ value
    starts, last = _accumulate(since[..., -1:, :].mT, added, state)
    return _each(scores, value), starts, last


def _replacing(
    query: Float[Tensor, "b g c r l d"],
    update: Update,
    since: Float[Tensor, "b g c l #d"],
    rest: Float[Tensor, "b g c l #d"],
    state: Float[Tensor, "b g d e"],
) -> Parts:
    """Compute chunks of the delta rule: w = alone − by_state · S."""
    key, value, log_decay, read, _ = update
    assert read is not None
    reads = torch.cat([query, read[:, :, :, None]], 3)
    scores = _scores(reads, key[:, :, :, None], log_decay)[..., 0, :, :]
    alone, by_state = _solve(scores[:, :, :, -1], value, read * since)
    changes = _Changes(since[..., -1:, :].mT, alone, by_state, (key * rest).mT)
    written, starts, last = changes.accumulate(state)
    return _each(scores[:, :, :, :-1], written), starts, last


def _erasing(
    query: Float[Tensor, "b g c r l d"],
    update: Update,
    since: Float[Tensor, "b g c l #d"],
    rest: Float[Tensor, "b g c l #d"],
    state: Float[Tensor, "b g d e"],
) -> Parts:
    """Compute chunks that erase at other keys than they write: −r = alone − by_state · S."""
    key, value, log_decay, read, erased = update
    assert read is not None
    assert erased is not None
    # y_i reads the state after token i − 1: it belongs to that row of the scores.
    reads = torch.cat([query, _shift_up(read)[:, :, :, None]], 3)
    scores = _scores(reads, torch.stack([key, erased], 3), log_decay)
    of_key, of_erased = scores[:, :, :, :-1].unbind(4)
    read_of_key, read_of_erased = _shift_down(scores[:, :, :, -1]).unbind(3)
    at_start = read * _shift_down(since, 1.0)
    alone, by_state = _solve(read_of_erased, -(read_of_key @ value), at_start)
    added = (key * rest).mT @ value
    changes = _Changes(since[..., -1:, :].mT, alone, by_state, (erased * rest).mT, added)
    written, starts, last = changes.accumulate(state)
    return _each(of_key, value) + _each(of_erased, written), starts, last


class _Changes(NamedTuple):
    """Effect of chunks on the state S: w = alone − by_state · S, S ← through ⊙ S + ends · w."""

    through: Float[Tensor, "b g c #d 1"]
    alone: Float[Tensor, "b g c l e"]
    by_state: Float[Tensor, "b g c l d"]
    ends: Float[Tensor, "b g c d l"]
    added: Float[Tensor, "b g c d e"] | None = None
    """Also added to S."""

    def accumulate(
        self, state: Float[Tensor, "b g d e"]
    ) -> tuple[Float[Tensor, "b g c l e"], Float[Tensor, "b g c d e"], Float[Tensor, "b g d e"]]:
        """Return w of each chunk, the states before each, and the state after the last."""
        rows, written, states = state.shape[:2], [], [state.flatten(0, 1)]
        through, alone, by_state, ends = (x.flatten(0, 1).unbind(1) for x in self[:4])
        added: Sequence[Tensor | None] = [None] * len(ends)
        if self.added is not None:
            added = self.added.flatten(0, 1).unbind(1)
        for i, more in enumerate(added):
            written.append(torch.baddbmm(alone[i], by_state[i], states[-1], alpha=-1))
            decayed = through[i] * states[-1]
            decayed = decayed if more is None else decayed + more
            states.append(torch.baddbmm(decayed, ends[i], written[-1]))
        of_chunks = (torch.stack(x, 1).unflatten(0, rows) for x in (written, states[:-1]))
        return *of_chunks, states[-1].unflatten(0, rows)


def _solve(
    below: Float[Tensor, "b g c l l"],
    first: Float[Tensor, "b g c l e"],
    second: Float[Tensor, "b g c l d"],
) -> tuple[Float[Tensor, "b g c l e"], Float[Tensor, "b g c l d"]]:
    """Solve (I + L) x = first and (I + L) x = second; L is the strict lower triangle of `below`."""
    below = below.contiguous()  # a slice takes twice as long
    rows = torch.cat([first, second], -1)
    # Transposed, both have the memory order of LAPACK, which saves copies and half the time.
    both = torch.linalg.solve_triangular(
        below.mT, rows.mT, upper=True, left=False, unitriangular=True
    ).mT
    of_first, of_second = both.split([first.shape[-1], second.shape[-1]], -1)
    return of_first, of_second


def _each(
    rows: Float[Tensor, "b g c r l k"], matrix: Float[Tensor, "b g c k e"]
) -> Float[Tensor, "b g c r l e"]:
    """Multiply all reads of a chunk with one matrix."""
    products: Tensor = (rows.flatten(3, 4) @ matrix).unflatten(3, rows.shape[3:5])
    return products


def _chunks(x: Float[Tensor, "*rows n d"], length: int) -> Float[Tensor, "*rows c l d"]:
    """Split tokens into chunks, the last one padded with zeros, which leave the state as it is."""
    filled = F.pad(x, (0, 0, 0, -x.shape[-2] % length))
    chunks: Tensor = filled.unflatten(-2, (-1, length))
    return chunks


def _shift_up(x: Float[Tensor, "*rows l d"]) -> Float[Tensor, "*rows l d"]:
    """Return the vector of the next token for each token, zeros for the last."""
    return F.pad(x[..., 1:, :], (0, 0, 0, 1))


def _shift_down(x: Float[Tensor, "*rows l d"], first: float = 0.0) -> Float[Tensor, "*rows l d"]:
    """Return the vector of the previous token for each token."""
    return F.pad(x[..., :-1, :], (0, 0, 1, 0), value=first)


def _scores(
    reads: Float[Tensor, "b g c r l d"],
    writes: Float[Tensor, "b g c w l d"],
    log_decay: Float[Tensor, "b g c l #d"],
) -> Float[Tensor, "b g c r w l l"]:
    """Return Σ_c read_ic write_jc e^(Σ_(s=j+1..i) g_sc) for j ≤ i, else 0."""
    if log_decay.shape[-1] == 1:
        products = reads.flatten(3, 4) @ writes.flatten(3, 4).mT
        pairs: Tensor = products.unflatten(4, writes.shape[3:5]).unflatten(3, reads.shape[3:5])
        return pairs.transpose(4, 5) * _spans(log_decay)[:, :, :, None, None]
    return _channel_scores(reads, writes, log_decay)


def _spans(log_decay: Float[Tensor, "b g c l 1"]) -> Float[Tensor, "b g c l l"]:
    """Return the decay from after token j to token i, 0 for j > i."""
    length = log_decay.shape[-2]
    later = torch.ones(length, length, dtype=torch.bool, device=log_decay.device).tril(-1)
    sums = torch.where(later, log_decay, 0.0).cumsum(-2)
    return sums.exp().tril()


def _channel_scores(
    reads: Float[Tensor, "b g c r l d"],
    writes: Float[Tensor, "b g c w l d"],
    log_decay: Float[Tensor, "b g c l d"],
) -> Float[Tensor, "b g c r w l l"]:
    """Return the scores with decays per channel, by doubling the length of segments.

    The score of a read in the later half of a segment and a write in the earlier half has the
    decays to the middle and from the middle: a product of two matrices, neither of which overflows.
    """
    length = reads.shape[-2]
    missing = (1 << (length - 1).bit_length()) - length
    reads, writes, log_decay = (F.pad(x, (0, 0, 0, missing)) for x in (reads, writes, log_decay))
    own = (reads[:, :, :, :, None] * writes[:, :, :, None]).sum(-1)
    scores = own[..., None, None]
    while (half := scores.shape[-1]) < length:
        earlier, later = log_decay.unflatten(-2, (-1, 2, half)).unbind(-3)
        to_middle, from_middle = _rest(earlier).exp(), later.cumsum(-2).exp()
        written = writes.unflatten(-2, (-1, 2, half))[..., 0, :, :] * to_middle[:, :, :, None]
        read = reads.unflatten(-2, (-1, 2, half))[..., 1, :, :] * from_middle[:, :, :, None]
        across = _pairs(read, written)
        first, second = scores.unflatten(-3, (-1, 2)).unbind(-3)
        upper = F.pad(first, (0, half))
        scores = torch.cat([upper, torch.cat([across, second], -1)], -2)
    return scores[..., 0, :length, :length]


def _pairs(
    read: Float[Tensor, "b g c r s l d"], written: Float[Tensor, "b g c w s l d"]
) -> Float[Tensor, "b g c r w s l l"]:
    """Return the products of reads with writes of the same segment s, by one matrix product."""
    left, right = (x.transpose(3, 4).flatten(4, 5) for x in (read, written))
    products = (left @ right.mT).unflatten(-1, (written.shape[3], -1))
    pairs: Tensor = products.unflatten(4, (read.shape[3], -1)).permute(0, 1, 2, 4, 6, 3, 5, 7)
    return pairs


def _rest(log_decay: Float[Tensor, "*rows l #d"]) -> Float[Tensor, "*rows l #d"]:
    """Return the logarithm of the decay from after each token to the end."""
    return _shift_up(log_decay).flip(-2).cumsum(-2).flip(-2)


def _accumulate(
    through: Float[Tensor, "b g c #d 1"],
    added: Float[Tensor, "b g c d e"],
    state: Float[Tensor, "b g d e"],
) -> tuple[Float[Tensor, "b g c d e"], Float[Tensor, "b g d e"]]:
    """Return the states before each chunk, and after the last: S ← through ⊙ S + added."""
    states = [state]
    for scale, more in zip(through.unbind(2), added.unbind(2), strict=True):
        states.append(torch.addcmul(more, scale, states[-1]))
    return torch.stack(states[:-1], 2), states[-1]
