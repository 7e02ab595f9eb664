"""Values that the layers of a stack take from elsewhere: from the first layer, and from tables.

Shapes: b rows, n tokens, e the width of a value.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.models.config import TransformerConfig
from regard.models.tensors import TokenIds


class SharedValues:
    """What one pass of tokens through a stack adds to the values of its layers.

    No dataclass: FSDP passes copies of those to each layer, and `first` would be lost.
    """

    first: Float[Tensor, "b value_heads n e"]
    """Values of the first layer, which sets them."""

    def __init__(self, added: Sequence[Float[Tensor, "b n value_heads*e"] | None]) -> None:
        """With the embeddings of the tokens in the table of each layer that has one."""
        self.added = added


class ValueMixture(nn.Module):
    """v_l ← λ_1 v_1 + λ_2 v_l + E_l[t], of which a layer has one part or both.

    The first is the value residual of ResFormer (Zhou et al., 2024, arXiv:2410.17897, with learned
    λ, ½ at first), the second a value embedding. Layer 0 only sets v_1, before its own embedding.
    """

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        """Build the weights λ of a layer."""
        super().__init__()
        self.layer = layer
        mixes = config.value_residual and layer > 0
        self.weights = nn.Parameter(torch.full((2,), 0.5)) if mixes else None

    def forward(
        self, value: Float[Tensor, "b value_heads n e"], shared: SharedValues
    ) -> Float[Tensor, "b value_heads n e"]:
        """Return the values of a layer with what is added to them."""
        if self.layer == 0:
            shared.first = value
        if self.weights is not None:
            value = self.weights[0] * shared.first + self.weights[1] * value
        added = shared.added[self.layer]
        if added is None:
            return value
        b, heads, n, e = value.shape
        return value + added.to(value.dtype).view(b, n, heads, e).transpose(1, 2)


class ValueEmbeddings(nn.ModuleDict):
    """A table of values for each layer that has one, by the number of the layer.

    As in Jordan et al., 2024, "modded-nanogpt".
    """

    def __init__(self, layers: Sequence[TransformerConfig], vocabulary: int) -> None:
        """Build the tables of the layers with `value_embedding`."""
        widths = {str(i): one.value_heads * one.d_head for i, one in enumerate(layers)}
        own = (str(i) for i, one in enumerate(layers) if one.value_embedding)
        super().__init__({name: nn.Embedding(vocabulary, widths[name]) for name in own})
        self.layers = list(widths)

    def forward(self, input_ids: TokenIds) -> SharedValues:
        """Return what a pass of these tokens adds to the values of each layer."""
        return SharedValues([self[i](input_ids) if i in self else None for i in self.layers])
