"""Kernel attention: weights φ(q)·φ(k), with sums over keys that all queries share.

    c_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j) = φ(q_i)·S / φ(q_i)·Z,
    S = Σ_j φ(k_j) v_jᵀ,   Z = Σ_j φ(k_j)            (Katharopoulos et al., 2020, eqs 4-6)

in time linear in the number of keys. Causal, S and Z are running sums (eqs 10-12), in chunks.

Values have an additional last coordinate of 1, so that Z is the last column of S. The scale of φ(q)
cancels in the ratio; `prefix_sums` handles that of φ(k).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import reference
from regard.attention.base import Attention, at_least_float32, without_autocast
from regard.attention.cost import Cost, Shape
from regard.attention.feature_maps import FeatureMap
from regard.attention.kernel_config import KernelConfig
from regard.attention.mask import Mask
from regard.attention.prefix_sums import (
    Carry,
    Part,
    Tokens,
    finite,
    merge,
    scan,
    shares_of,
    with_one,
)
from regard.attention.state import RowState, State, StateShape
from regard.attention.types import AnyBias, DenseBias, Keys, Queries, Values, Weights
from regard.errors import NormalizerError

CACHED = 1 << 20
"""Number of features that fit the caches of a CPU's cores: four megabytes in float32."""


@dataclass(frozen=True, eq=False)
class KernelState(RowState):
    """S with Z as its last column, divided by e^maximum: the same size for any length."""

    sums: Float[Tensor, "batch kv_heads m e_and_1"]
    maximum: Float[Tensor, "batch kv_heads"]
    length: Int[Tensor, " batch"]


class KernelAttention(Attention):
    """Attention with φ(q)·φ(k) instead of e^(q·k/√d), in time linear in the length.

    Katharopoulos et al., 2020, arXiv:2006.16236, eqs 4-6; causal: eqs 10-12. Computes in float32
    at least. Documents must be contiguous.

    >>> from regard.attention.feature_maps import Elu
    >>> query, key, value = torch.randn(3, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> KernelAttention(Elu())(query, key, value, mask=Mask.causal()).shape
    torch.Size([1, 2, 5, 8])
    """

    name = "kernel"
    supports = KernelConfig.supports
    nonpositive: Tensor
    """Number of sums of weights ≤ 0, counted where no error is raised."""
    counts = False
    """Whether such sums are counted on a GPU; compiled code, which can't raise, always counts."""

    def __init__(self, features: FeatureMap, *, chunk: int = 64) -> None:
        """`features` is φ; `chunk` is the number of tokens whose weights are computed pairwise.

        Raises:
            ValueError: a chunk has no token.
        """
        super().__init__()
        if chunk < 1:
            raise ValueError(f"a chunk has at least one token, not {chunk}")
        self.features, self.chunk = features, chunk
        self.register_buffer("nonpositive", torch.zeros((), dtype=torch.long), persistent=False)

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """φ(q_i)·φ(k_j) / Σ_l φ(q_i)·φ(k_l) over the allowed keys."""
        kernel = self.features.reference(*reference.pairs(query, key))
        return reference.normalized(kernel, reference.allowed(query, key, mask))

    def _forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> Tensor:
        """Return the weighted mean of the values of each query.

        Raises:
            NormalizerError: the weights of a query add up to zero or less.
            ValueError: a document isn't contiguous in its row.

        Compiled code doesn't raise: it counts normalizers ≤ 0, and treats each part of a document
        as a document. For normalizers on a GPU, see `normalizers_checked_together`.
        """
        if not query.shape[2]:
            return query.new_zeros(*query.shape[:3], value.shape[-1])
        sums, alive = self._sums(query, key, value, mask or Mask())
        return self._divide(sums, alive).to(query.dtype)

    def sums(
        self, query: Queries, key: Keys, value: Values, *, mask: Mask | None = None
    ) -> tuple[Float[Tensor, "batch heads queries e"], Float[Tensor, "batch heads queries"]]:
        """Return numerator and normalizer of each query, divided by the same positive number.

        Unlike `forward`, this accepts normalizers that are zero or negative.
        """
        self._validate(query, key, mask=mask)
        sums, _ = self._sums(query, key, value, mask or Mask())
        return sums[..., :-1], sums[..., -1]

    def _weights(
        self, query: Tensor, key: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> Tensor:
        if not key.shape[2]:
            return at_least_float32(query).new_zeros(*query.shape[:3], 0)
        with without_autocast(query):
            weights = self._matrix(query, key, mask or Mask())
            sums = torch.cat([weights.sums, weights.sums.sum(-1, keepdim=True)], -1)
        return self._divide(*_by_head(Part(sums, weights.maximum)))

    def _init_state(self, shape: StateShape) -> State:
        """Return the state before the first token, of the same size for any capacity."""
        rows, m = (shape.batch, shape.kv_heads), self.features.size(shape.d)
        dtype = torch.promote_types(shape.dtype, torch.float32)
        sums = torch.zeros(*rows, m, shape.e + 1, device=shape.device, dtype=dtype)
        length = torch.zeros(shape.batch, device=shape.device, dtype=torch.long)
        return KernelState(sums, sums.new_full(rows, float("-inf")), length)

    def _extend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: State,
        attention_mask: Tensor | None,
        bias: AnyBias | None,
    ) -> tuple[Tensor, State]:
        assert isinstance(state, KernelState)
        if not key.shape[2]:
            return query.new_zeros(*query.shape[:3], value.shape[-1]), state
        if key.shape[2] == 1 and attention_mask is None:
            return self._step(query, key, value, state)
        real = attention_mask
        if real is None:
            real = torch.ones_like(key[:, 0, :, 0], dtype=torch.bool)
        with without_autocast(query):
            tokens = _tokens(query, key, value, ~real, torch.zeros_like(real, dtype=torch.long))
            carry = Carry(state.sums, state.maximum, tokens.documents[:, 0])
            part, carry = self._scan(tokens, carry, torch.tril)
            sums, alive = _by_head(part)
            out = self._divide(sums, alive & real[:, None]).to(query.dtype)
        return out, KernelState(carry.sums, carry.maximum, state.length + real.sum(1))

    def _encode_memory(self, key: Tensor, value: Tensor, mask: Mask) -> State:
        assert mask.key_lengths is not None
        with without_autocast(key):
            carry = self._absorb(key, value, _hidden(key, mask))
        return KernelState(carry.sums, carry.maximum, mask.key_lengths)

    def _attend_memory(self, query: Tensor, memory: State) -> Tensor:
        assert isinstance(memory, KernelState)
        with without_autocast(query):
            sums, alive = self._read(query, memory.sums, memory.maximum)
        return self._divide(sums, alive).to(query.dtype)

    def cost(self, shape: Shape) -> Cost:
        step = shape.mode == "step"
        tokens = shape.queries if step else shape.keys  # a step reads only the new keys
        query_rows = shape.batch * shape.heads * shape.queries
        key_rows = shape.batch * shape.kv_heads * tokens
        m, e = self.features.size(shape.d), shape.e + 1
        operations, by_row = (query_rows + key_rows) * 2 * m * e, self.features.operations(shape.d)
        if not step and shape.keys <= self.chunk:  # the matrix, and nothing else
            operations = 2 * query_rows * shape.keys * (self.features.kernel_width(shape.d) + e)
            by_row = self.features.kernel_operations(shape.d)
        elif tokens > 1 and (shape.causal or step):  # the matrices of chunks
            operations += 2 * query_rows * min(self.chunk, tokens) * (m + e)
        # The projections of features have no gradient: one product in the backward pass.
        features = (query_rows + key_rows) * by_row * (2 if shape.mode == "training" else 1)
        state = shape.batch * shape.kv_heads * (m * e + 1) * max(4, shape.dtype.itemsize)
        moved = (query_rows + key_rows) * (shape.d + shape.e) * shape.dtype.itemsize
        return Cost(
            operations=operations * shape.passes + features,
            bytes=moved * shape.passes + (2 * state if step else 0),
            parameters=sum(parameter.numel() for parameter in self.parameters()),
            state_bytes=state + 8 * shape.batch,
        )

    def _sums(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
        """Return each query's sum of weights times values, and whether it may attend to any key."""
        mask.require_contiguous(self.name)
        hidden = _hidden(key, mask)
        with without_autocast(query):
            if 0 < key.shape[2] <= self.chunk:
                return self._few_sums(query, key, value, mask)
            if mask.alignment is not None:
                return self._causal_sums(query, key, value, hidden, mask)
            if mask.document_ids is not None:
                return self._document_sums(query, key, value, hidden, mask)
            carry = self._absorb(key, value, hidden)
            return self._read(query, carry.sums, carry.maximum)

    def _few_sums(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask
    ) -> tuple[Tensor, Tensor]:
        """Return the sums of at most a chunk of keys, by the matrix of weights."""
        weights = self._matrix(query, key, mask)
        value = with_one(at_least_float32(value))
        sums = (weights.sums.flatten(2, 3) @ value).unflatten(2, weights.sums.shape[2:4])
        return _by_head(Part(sums, weights.maximum))

    def _matrix(self, query: Tensor, key: Tensor, mask: Mask) -> Part:
        """Return the weights, (b, g, r, queries, keys), before normalization."""
        (batch, kv_heads, keys, _), queries = key.shape, query.shape[2]
        visible = mask.to_dense(queries, keys, query.device).expand(-1, -1, queries, keys)
        grouped = _grouped(query, kv_heads)
        kernel, scale = self.features.kernel(grouped.flatten(2, 3), at_least_float32(key))
        shares, maximum = shares_of(scale[:, :, None], visible)
        kernel = kernel.unflatten(2, grouped.shape[2:4]) * shares[:, :, None]
        return Part(kernel, maximum[:, :, None, :, None].expand(batch, -1, -1, -1, -1))

    def _causal_sums(
        self, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, mask: Mask
    ) -> tuple[Tensor, Tensor]:
        queries, keys = query.shape[2], key.shape[2]
        before = mask.shift(queries, keys)
        first = slice(0, max(before, 0))
        carry = self._absorb(key[:, :, first], value[:, :, first], hidden[:, first])
        # Query i is at key before + i: earlier keys are in the carry, missing keys are hidden.
        fit = (-before, queries + before - keys)
        key, value = (F.pad(x, (0, 0, *fit)) for x in (key, value))
        hidden = F.pad(hidden, fit, value=True)
        tokens = _tokens(query, key, value, hidden, _documents(query, mask))
        part, _ = self._scan(tokens, carry._replace(document=tokens.documents[:, 0]), torch.tril)
        return _by_head(part)

    def _document_sums(
        self, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, mask: Mask
    ) -> tuple[Tensor, Tensor]:
        """Add the sums over chunks up to the query's own and after it, within its document."""
        n = hidden.shape[1]
        tokens = _tokens(query, key, value, hidden, _documents(query, mask))
        tokens = tokens.padded(min(self.chunk, n))
        nothing = self._absorb(key[:, :, :0], value[:, :, :0], hidden[:, :0])
        start, end = (nothing._replace(document=tokens.documents[:, i]) for i in (0, -1))
        to_its_own, _ = self._scan(tokens, start, torch.ones_like)
        after, _ = self._scan(tokens.flipped(), end, torch.zeros_like)
        sums, alive = _by_head(merge(to_its_own, Part(after.sums.flip(3), after.maximum.flip(3))))
        return sums[:, :, :n], alive[:, :, :n]

    def _scan(
        self, tokens: Tokens, carry: Carry, pattern: Callable[[Tensor], Tensor]
    ) -> tuple[Part, Carry]:
        """Return the sums of each query, (b, g, r, n, e), and the carry after the last token.

        `pattern` selects, in a matrix of ones, the keys of its chunk that each query sums over.
        """
        n = tokens.hidden.shape[1]
        length = min(self.chunk, n)
        tokens = tokens.padded(length)
        within = pattern(tokens.hidden.new_ones(length, length))
        segment = _segment(tokens.query, self.features.size(tokens.key.shape[-1]))
        segment = max(segment // length, 1) * length
        parts = []
        for some in tokens.split(segment):
            part, carry = scan(some.chunks(self.features, length), carry, within)
            parts.append(Part(*(x.transpose(2, 3).flatten(3, 4) for x in part)))
        sums, maxima = (torch.cat(each, 3)[:, :, :, :n] for each in zip(*parts, strict=True))
        return Part(sums, maxima), carry

    def _step(
        self, query: Tensor, key: Tensor, value: Tensor, state: KernelState
    ) -> tuple[Tensor, KernelState]:
        """One token: S ← S + φ(k)vᵀ, and then φ(q)·S (Katharopoulos et al., 2020, eqs 16-20)."""
        sizes = [query.shape[1], key.shape[1]]
        with without_autocast(query):
            features, scale = self.features(at_least_float32(torch.cat([query, key], 1)))
            of_query, of_key = features.split_with_sizes(sizes, 1)
            # The old state isn't used again: change its sums in place, unless gradients need them.
            sums = state.sums.clone() if torch.is_grad_enabled() else state.sums
            maximum = scale = scale[:, sizes[0] :]
            if self.features.scaled:
                before = state.maximum[..., None]
                maximum = torch.maximum(before, scale)
                sums = sums.mul_((before - maximum).exp()[..., None])
                of_key = of_key * (scale - maximum).exp()[..., None]
            sums.addcmul_(of_key.mT, with_one(at_least_float32(value)))
            grouped = query.shape[0], sizes[1], sizes[0] // sizes[1], of_query.shape[-1]
            read = of_query.reshape(grouped) @ sums
        out = self._divide(read.reshape(*query.shape[:3], sums.shape[-1]), None).to(query.dtype)
        return out, KernelState(sums, maximum[..., 0], state.length + 1)

    def _absorb(self, key: Tensor, value: Tensor, hidden: Tensor) -> Carry:
        """Return the sum over all keys."""
        m, (batch, kv_heads, keys, e) = self.features.size(key.shape[-1]), value.shape
        sums = at_least_float32(value).new_zeros(batch, kv_heads, m, e + 1)
        maximum = sums.new_full((batch, kv_heads), float("-inf"))
        segment = _segment(key, m)
        parts = (x.split(segment, 2) for x in (key, value, hidden[:, None]))
        first = True
        for some_keys, some_values, unseen in zip(*parts, strict=True) if keys else ():
            features, scale = self.features(at_least_float32(some_keys))
            scale = scale.masked_fill(unseen, float("-inf"))
            largest = scale.amax(-1)
            before, maximum = maximum, largest if first else torch.maximum(maximum, largest)
            shares = (scale - finite(maximum)[..., None]).exp()
            added = features.mT @ (shares[..., None] * with_one(at_least_float32(some_values)))
            if first:  # the maximum before is −∞, and inductor can't bound −∞ − −∞
                sums, first = added, False
                continue
            kept = (before - finite(maximum)).exp()
            sums = torch.addcmul(added, kept[..., None, None], sums)
        document = torch.zeros(batch, dtype=torch.long, device=key.device)
        return Carry(sums, maximum, document)

    def _read(self, query: Tensor, sums: Tensor, maximum: Tensor) -> tuple[Tensor, Tensor]:
        """Return each query's part of a sum over keys visible to all, and whether it has a key."""
        query = _grouped(query, sums.shape[1])
        parts = query.split(_segment(query, sums.shape[2]), 3)
        read = [self.features(part)[0] @ sums[:, :, None] for part in parts]
        return _by_head(Part(torch.cat(read, 3), maximum[:, :, None, None, None]))

    def _divide(self, sums: Tensor, alive: Tensor | None) -> Tensor:
        """Divide numerators by normalizers; zero where `alive` is False (None: nowhere)."""
        numerator, total = sums.split_with_sizes([sums.shape[-1] - 1, 1], -1)
        if alive is not None:
            total = total.masked_fill(~alive[..., None], float("inf"))
        self._require_positive(total)
        return numerator / total

    def _require_positive(self, total: Tensor) -> None:
        """Raise unless all sums of weights are positive, or count the others."""
        # A subnormal sum has lost its digits, like zero.
        least = torch.finfo(total.dtype).tiny
        if torch.compiler.is_compiling() or (self.counts and total.is_cuda):
            self.nonpositive.add_((~(total >= least)).sum())
        elif total.numel() and not total.min().item() >= least:
            wrong = int((~(total >= least)).sum())
            raise self.normalizer_error(f"the weights of {wrong} of {total.numel()} queries")

    def normalizer_error(self, weights: str) -> NormalizerError:
        """Return the error for weights whose sums aren't positive."""
        other = "" if self.features.positive else ", or features that are always positive"
        return NormalizerError(
            f"{weights} add up to zero or less with {type(self.features).__name__} features; take "
            f"smaller queries and keys{other}"
        )


@contextmanager
def normalizers_checked_together(model: nn.Module, place: str = "") -> Iterator[None]:
    """Check the normalizers of all kernel attention at the end of the with block.

    Eager code on a CPU raises at once. A GPU would synchronize in each layer for that: there, as
    in compiled code, each layer counts, and all counts are read together. Of nested blocks, the
    outermost checks.

    Raises:
        NormalizerError: names the place and the first layer with a sum of weights ≤ 0.
    """
    kernels = {name: m for name, m in model.named_modules() if isinstance(m, KernelAttention)}
    checked = {name: kernel for name, kernel in kernels.items() if not kernel.counts}
    for kernel in checked.values():
        kernel.counts = True
    try:
        yield
    finally:
        for kernel in checked.values():
            kernel.counts = False
    if checked:
        _raise_counted(checked, place)


def _raise_counted(kernels: dict[str, KernelAttention], place: str) -> None:
    """Raise if a layer has counted a sum of weights ≤ 0, and reset the counts."""
    counts = torch.stack([kernel.nonpositive for kernel in kernels.values()])
    for (name, kernel), count in zip(kernels.items(), counts.tolist(), strict=True):
        if count:
            for each in kernels.values():
                each.nonpositive.zero_()
            raise kernel.normalizer_error(f"{place}in {name}, the weights of {count} queries")


def _segment(x: Float[Tensor, "*rows n d"], m: int) -> int:
    """Return the number of tokens whose features are computed at once.

    On a CPU, their features fit the cache. On a GPU, segments are larger.
    """
    token = max(x.shape[:-2].numel(), 1) * m
    return 4096 if x.is_cuda else max(CACHED // (64 * token), 1) * 64


def _grouped(query: Float[Tensor, "b h n d"], kv_heads: int) -> Float[Tensor, "b g r n d"]:
    """Group query heads by the key head that they share."""
    grouped: Tensor = at_least_float32(query).unflatten(1, (kv_heads, -1))
    return grouped


def _tokens(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, documents: Tensor) -> Tokens:
    """Return tokens in float32 at least."""
    grouped = _grouped(query, key.shape[1])
    return Tokens(grouped, at_least_float32(key), at_least_float32(value), hidden, documents)


def _by_head(part: Part) -> tuple[Float[Tensor, "b h n e"], Bool[Tensor, "b h n"]]:
    """Return the sums of each query, and whether they include any key."""
    alive = (part.maximum > float("-inf"))[..., 0].expand(part.sums.shape[:-1])
    return part.sums.flatten(1, 2), alive.flatten(1, 2)


def _hidden(key: Tensor, mask: Mask) -> Bool[Tensor, "b n"]:
    """Return the keys to which no query may attend."""
    if mask.key_lengths is None:
        return key.new_zeros(key.shape[2], dtype=torch.bool).expand(len(key), -1)
    return mask.padding(key.shape[2], key.device)


def _documents(query: Tensor, mask: Mask) -> Int[Tensor, "b n"]:
    """Return the document of each token: one for all without document ids."""
    batch, n = len(query), query.shape[-2]
    ids = mask.document_ids
    if ids is None:
        return torch.zeros(batch, n, dtype=torch.long, device=query.device)
    return ids.expand(batch, -1)
