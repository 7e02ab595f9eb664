"""Gated linear recurrences: attention by a state that each token decays, erases from and writes to.

The state of a head is a matrix S of d × e numbers, for any number of tokens:

    S_t = (I − k_t (b_t ⊙ k_t)ᵀ) D_t S_(t−1) + k_t (w_t ⊙ v_t)ᵀ,   out_t = scale · q_tᵀ S_t,

with D_t = diag(e^log_decay). The mechanisms differ in their gates D, b and w; RWKV-7 erases at
a separate key. Unrolled, out = weights · v with

    weights_tj = scale · q_tᵀ T_t … T_(j+1) k_j w_j,   T_t = (I − k_t (b_t ⊙ k_t)ᵀ) D_t.

Where w differs by channel, no such matrix exists; `weights` then applies to w ⊙ v.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import flash_linear, reference
from regard.attention.base import Attention, at_least_float32, without_autocast
from regard.attention.cost import Cost, Shape
from regard.attention.gates import Gate
from regard.attention.mask import Mask, first_tokens
from regard.attention.recurrence import Update, scan
from regard.attention.recurrent_config import RecurrentConfig
from regard.attention.state import RowState, State, StateShape
from regard.attention.types import DenseBias, Keys, Queries, Weights

LOG_DECAY = Gate("log_decay", low=float("-inf"), high=0.0)
CHANNEL_LOG_DECAY = Gate("log_decay", "key", low=float("-inf"), high=0.0)
BETA = Gate("beta")


@dataclass(frozen=True, eq=False)
class RecurrentState(RowState):
    """S: the same size for any number of tokens."""

    matrix: Float[Tensor, "batch states d e"]
    length: Int[Tensor, " batch"]


class RecurrentAttention(Attention):
    """Base of the gated linear recurrences, which differ in the update of the state by a token.

    Each value head has a state. There may be fewer key heads, and fewer or more query heads:
    consecutive heads share a key head or a state. Documents must be contiguous. Computes in float32
    at least, unless flash-linear-attention is installed and rows are in half precision on a GPU.
    """

    supports = RecurrentConfig.supports
    gating = RecurrentConfig.gating
    chunk: ClassVar[int] = 64
    """Number of tokens of a chunk; fewer where decays differ by channel."""

    def __init__(self, *, scaled: bool = True, chunk: int | None = None) -> None:
        """`scaled` divides scores by √d; `chunk` is the number of tokens of a chunk.

        Raises:
            ValueError: a chunk has no token.
        """
        super().__init__()
        self.scaled, self.length = scaled, type(self).chunk if chunk is None else chunk
        if self.length < 1:
            raise ValueError(f"a chunk has at least one token, not {self.length}")

    @abstractmethod
    def update(self, key: Tensor, value: Tensor, **gates: Tensor) -> Update:
        """Return the update of the state by each token: (b, g, n, ·), in float32 at least."""

    def _forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        bias: None,
        **gates: Tensor,
    ) -> Tensor:
        out, _ = self._run(query, key, value, mask or Mask(), None, gates)
        return out.to(query.dtype)

    def _weights(
        self, query: Tensor, key: Tensor, mask: Mask | None, bias: None, **gates: Tensor
    ) -> Tensor:
        states = next(iter(gates.values()), key).shape[1]
        n = key.shape[2]
        one_hot = torch.eye(n, dtype=at_least_float32(key).dtype, device=key.device)
        value = one_hot.expand(len(key), states, n, n)
        ones = {gate.name: torch.ones_like(value) for gate in self.gates if gate.per == "value"}
        weights, _ = self._run(query, key, value, mask or Mask(), None, {**gates, **ones})
        return weights

    def _init_state(self, shape: StateShape) -> State:
        """Return the state before the first token, of the same size for any capacity."""
        matrix = torch.zeros(
            shape.batch,
            shape.kv_heads,
            shape.d,
            shape.e,
            device=shape.device,
            dtype=torch.promote_types(shape.dtype, torch.float32),
        )
        length = torch.zeros(shape.batch, device=shape.device, dtype=torch.long)
        return RecurrentState(matrix, length)

    def _extend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: State,
        attention_mask: Tensor | None,
        bias: None,
        **gates: Tensor,
    ) -> tuple[Tensor, State]:
        assert isinstance(state, RecurrentState)
        if key.shape[2] == 1 and attention_mask is None:
            with without_autocast(query):
                reads, update = self._updates(query, key, value, gates)
                out, matrix = update.step(reads.squeeze(3), state.matrix)
            out = out.flatten(1, 2).unsqueeze(2).to(query.dtype)
            return out, RecurrentState(matrix, state.length + 1)
        new: Tensor | int = key.shape[2]
        mask = Mask()
        if attention_mask is not None:
            new = attention_mask.sum(1)
            mask = Mask.lengths(new)
        out, matrix = self._run(query, key, value, mask, state.matrix, gates)
        return out.to(query.dtype), RecurrentState(matrix, state.length + new)

    def _run(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask,
        state: Float[Tensor, "b g d e"] | None,
        gates: Mapping[str, Tensor],
    ) -> tuple[Float[Tensor, "b h n e"], Float[Tensor, "b g d e"]]:
        """Return the output of each query, and the state after the last token."""
        by_kernels, dtype, n = flash_linear.fits(query, value), value.dtype, key.shape[2]
        with without_autocast(query):
            reads, update = self._updates(query, key, value, gates)
            if state is None:
                state = update.value.new_zeros(*value.shape[:2], key.shape[-1], value.shape[-1])
            if not n:
                return reads.new_zeros(*reads.shape[:4], value.shape[-1]).flatten(1, 2), state
            if mask.key_lengths is not None:
                update = update.skipping(mask.padding(n, key.device))
            if mask.document_ids is not None:
                mask.require_contiguous(self.name)
                ids = mask.document_ids
                first = mask.cached("first tokens", lambda: first_tokens(ids))
                update = update.restarting(first)
            if n == 1:
                out, state = update.step(reads.squeeze(3), state)
                return out.flatten(1, 2).unsqueeze(2), state
            if by_kernels:
                out, state = flash_linear.scan(reads, update, state, dtype=dtype)
            else:
                out, state = scan(reads, update, state, length=self.length)
        return out.flatten(1, 2), state

    def _updates(
        self, query: Tensor, key: Tensor, value: Tensor, gates: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "b g r n d"], Update]:
        """Return scaled queries, grouped by state, and the update of the state by each token."""
        (heads, states), (batch, key_heads, n, d) = (query.shape[1], value.shape[1]), key.shape
        if states % key_heads or (heads % states and states % heads):
            raise ValueError(
                f"{self.name} attention: {heads} query heads, {key_heads} key heads and "
                f"{states} value heads don't fit; each number must divide the larger ones"
            )
        query, key, value = at_least_float32(query), at_least_float32(key), at_least_float32(value)
        if heads < states:
            query = query.repeat_interleave(states // heads, 1)
        if key_heads < states:
            key = key.repeat_interleave(states // key_heads, 1)
        wide = {name: at_least_float32(gate) for name, gate in gates.items()}
        reads = query.view(batch, states, max(heads // states, 1), n, d)
        return reads * d**-0.5 if self.scaled else reads, self.update(key, value, **wide)

    def cost(self, shape: Shape) -> Cost:
        states, queries = shape.batch * shape.kv_heads, shape.batch * shape.heads
        d, e, n = shape.d, shape.e, shape.queries
        names = {gate.name for gate in self.gates}
        erases, writes = bool(names & {"beta", "erase"}), 2 if "removal_key" in names else 1
        length = min(self.length, n)
        chunks, pairs = -(-n // max(length, 1)), 2 * length * length
        if n == 1:
            operations = 2 * d * e * (queries + states * (1 + writes if erases else 1))
        else:
            by_channel = CHANNEL_LOG_DECAY in self.gates
            scores = d * writes * (length * (length + 1) if by_channel else pairs)
            by_query = scores + pairs * writes * e + 2 * length * d * e
            by_state = 2 * length * d * e
            if erases:  # its scores, triangular system and reads of the state
                by_state += scores + pairs // 2 * (d + e) + 2 * length * d * e
            if writes == 2:
                by_state += pairs * e + 2 * length * d * e
            operations = chunks * (queries * by_query + states * by_state)
        state = states * d * e * max(4, shape.dtype.itemsize)
        gates = sum({"head": 1, "key": d, "value": e}[gate.per] for gate in self.gates)
        moved = (queries * n * (d + e) + states * n * (d + e + gates)) * shape.dtype.itemsize
        return Cost(
            operations=operations * shape.passes,
            bytes=moved * shape.passes + (2 * state if shape.mode == "step" else 0),
            parameters=0,
            state_bytes=state + 8 * shape.batch,
        )


class GatedRecurrence(RecurrentAttention):
    """Base of the recurrences with the gates below, from which the reference follows.

    log_decay: D. beta: b = w, one number per token. erase: b. write: w. removal_key: the key κ at
    which a token erases instead of k; then T_t = D_t − (b_t ⊙ κ_t) κ_tᵀ.
    """

    def reference(
        self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None, **gates: Tensor
    ) -> Weights:
        """scale · q_tᵀ T_t … T_(j+1) k_j w_j, with T_t = (I − k_t (b_t ⊙ k_t)ᵀ) D_t."""
        transition = reference.transition(key, gates)
        write = gates.get("beta")
        return reference.recurrence(query, key, transition, mask, write=write, scaled=self.scaled)


class GatedLinear(GatedRecurrence):
    """S_t = D_t S_(t−1) + k_t v_tᵀ, with a decay per channel (Yang et al., 2023, eq. 3).

    D_t is diagonal, with entries e^log_decay; the gate log_decay ≤ 0 has the keys' shape.

    >>> query, key, value = torch.ones(3, 1, 1, 3, 2)  # batch, heads, tokens, width
    >>> gates = {"log_decay": torch.full((1, 1, 3, 2), 0.5).log()}
    >>> GatedLinear(scaled=False)(query, key, value, mask=Mask.causal(), gates=gates)[0, 0, :, 0]
    tensor([2.0000, 3.0000, 3.5000])
    """

    name = "gated-linear"
    gates = (CHANNEL_LOG_DECAY,)
    chunk = 32

    def update(self, key: Tensor, value: Tensor, **gates: Tensor) -> Update:
        return Update(key, value, gates["log_decay"])


class Mamba2(GatedRecurrence):
    """S_t = e^log_decay S_(t−1) + k_t v_tᵀ, with a decay per head (Dao & Gu, 2024, eq. 2).

    The gate log_decay ≤ 0 has the shape batch × heads × tokens.

    >>> query, key, value = torch.ones(3, 1, 1, 3, 2)  # batch, heads, tokens, width
    >>> gates = {"log_decay": torch.full((1, 1, 3), 0.5).log()}
    >>> Mamba2()(query, key, value, mask=Mask.causal(), gates=gates)[0, 0, :, 0]
    tensor([2.0000, 3.0000, 3.5000])
    """

    name = "mamba2"
    gates = (LOG_DECAY,)

    def __init__(self, *, scaled: bool = False, chunk: int | None = None) -> None:
        super().__init__(scaled=scaled, chunk=chunk)

    def update(self, key: Tensor, value: Tensor, **gates: Tensor) -> Update:
        return Update(key, value, gates["log_decay"][..., None])


class DeltaNet(GatedRecurrence):
    """S_t = (I − β_t k_t k_tᵀ) S_(t−1) + β_t k_t v_tᵀ (Schlag et al., 2021, eq. 24).

    A token replaces the value stored at its key. The gate beta has the shape batch × heads ×
    tokens. β up to 2 with keys of length 1 gives eigenvalues down to −1 (Grazzi et al., 2025).

    >>> key = torch.ones(1, 1, 2, 1)  # the same key twice
    >>> value = torch.tensor([[[[1.0], [5.0]]]])
    >>> gates = {"beta": torch.ones(1, 1, 2)}
    >>> DeltaNet()(key, key, value, mask=Mask.causal(), gates=gates).flatten()
    tensor([1., 5.])
    """

    name = "deltanet"
    gates = (BETA,)

    def update(self, key: Tensor, value: Tensor, **gates: Tensor) -> Update:
        beta = gates["beta"][..., None]
        return Update(key, beta * value, torch.zeros_like(beta), beta * key)


class GatedDeltaNet(GatedRecurrence):
    """S_t = (I − β_t k_t k_tᵀ) e^log_decay S_(t−1) + β_t k_t v_tᵀ (Yang et al., 2024, eq. 10).

    >>> key = torch.ones(1, 1, 2, 1)  # the same key twice
    >>> value = torch.tensor([[[[1.0], [5.0]]]])
    >>> gates = {"log_decay": torch.zeros(1, 1, 2), "beta": torch.full((1, 1, 2), 0.5)}
    >>> GatedDeltaNet()(key, key, value, mask=Mask.causal(), gates=gates).flatten()
    tensor([0.5000, 2.7500])
    """

    name = "gated-deltanet"
    gates = (LOG_DECAY, BETA)

    def update(self, key: Tensor, value: Tensor, **gates: Tensor) -> Update:
        log_decay, beta = gates["log_decay"][..., None], gates["beta"][..., None]
        return Update(key, beta * value, log_decay, beta * key)


class KimiDelta(GatedRecurrence):
    """S_t = (I − β_t k_t k_tᵀ) D_t S_(t−1) + β_t k_t v_tᵀ, with a decay per channel.

    Kimi Delta Attention (Kimi Team, 2025, arXiv:2510.26692, eq. 1).

    >>> query, key, value = torch.randn(3, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> gates = {"log_decay": -torch.rand(1, 2, 5, 8), "beta": torch.rand(1, 2, 5)}
    >>> KimiDelta()(query, key, value, mask=Mask.causal(), gates=gates).shape
    torch.Size([1, 2, 5, 8])
    """

    name = "kimi-delta"
    gates = (CHANNEL_LOG_DECAY, BETA)
    chunk = 32

    def update(self, key: Tensor, value: Tensor, **gates: Tensor) -> Update:
        log_decay, beta = gates["log_decay"], gates["beta"][..., None]
        return Update(key, beta * value, log_decay, beta * key)


class GatedDeltaNet2(GatedRecurrence):
    """S_t = (I − k_t (b_t ⊙ k_t)ᵀ) D_t S_(t−1) + k_t (w_t ⊙ v_t)ᵀ, with gates per channel.

    Hatamizadeh et al., 2026, arXiv:2605.22791. `weights` applies to write ⊙ v.

    >>> query, key, value, erase, write = torch.rand(5, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> gates = {"log_decay": -torch.rand(1, 2, 5, 8), "erase": erase, "write": write}
    >>> GatedDeltaNet2()(query, key, value, mask=Mask.causal(), gates=gates).shape
    torch.Size([1, 2, 5, 8])
    """

    name = "gated-deltanet-2"
    gates = (CHANNEL_LOG_DECAY, Gate("erase", "key"), Gate("write", "value"))
    chunk = 32

    def update(self, key: Tensor, value: Tensor, **gates: Tensor) -> Update:
        log_decay, erase = gates["log_decay"], gates["erase"]
        return Update(key, gates["write"] * value, log_decay, erase * key)


class RWKV7(GatedRecurrence):
    """S_t = (D_t − (a_t ⊙ κ_t) κ_tᵀ) S_(t−1) + k_t v_tᵀ (Peng et al., 2025, eq. 17).

    It erases at a separate key: κ is the gate removal_key, a the gate erase.

    >>> query, key, value, erase = torch.rand(4, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> gates = {"log_decay": -torch.rand(1, 2, 5, 8), "removal_key": key, "erase": erase}
    >>> RWKV7()(query, key, value, mask=Mask.causal(), gates=gates).shape
    torch.Size([1, 2, 5, 8])
    """

    name = "rwkv7"
    gates = (
        CHANNEL_LOG_DECAY,
        Gate("removal_key", "key", low=-1.0, high=1.0),
        Gate("erase", "key"),
    )
    chunk = 32

    def __init__(self, *, scaled: bool = False, chunk: int | None = None) -> None:
        super().__init__(scaled=scaled, chunk=chunk)

    def update(self, key: Tensor, value: Tensor, **gates: Tensor) -> Update:
        removal_key = gates["removal_key"]
        return Update(key, value, gates["log_decay"], removal_key, gates["erase"] * removal_key)
