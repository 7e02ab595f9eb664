"""Self-attention with keys and values from a latent (DeepSeek-AI, 2024, arXiv:2405.04434, §2.1).

Shapes: b rows, n tokens, h heads of width d, r = d_rope, c = d_latent.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import AnyBias, Mask, State
from regard.attention.base import product_dtype
from regard.attention.latent import LatentCache
from regard.attention.norm import RMSNorm
from regard.attention.score_config import LatentConfig
from regard.models.attention_layers import Attend, SelfAttention, SharedValues
from regard.models.config import TransformerConfig
from regard.models.tensors import Heads, Hidden, Rope, TokenMask, heads_of
from regard.positions import rotate


class LatentSelfAttention(SelfAttention):
    """Queries [q_r; q], keys [k_r; W_UK c] and values W_UV c of a token's latent c.

    q_r and k_r have rotary positions; all heads share k_r. A step attends to the latents
    themselves, with queries W_UKᵀ q, and projects the weighted sum by W_UV.
    """

    def make_projections(self, config: TransformerConfig) -> None:
        """Create the projections to and from the latents."""
        attention = config.attention
        assert isinstance(attention, LatentConfig)
        self.heads, self.rotary_parts = [config.n_heads] * 3, 1
        self.d_latent = attention.latent_width(config.d_head)
        self.d_rope = attention.rotary_width(config.d_head)
        self.q_proj = _query_projection(config, attention)
        self.kv_down_proj = nn.Linear(
            config.d_model, self.d_rope + self.d_latent, bias=config.qkv_bias
        )
        self.kv_norm = RMSNorm(self.d_latent, eps=config.norm_eps)
        self.kv_up_proj = nn.Linear(self.d_latent, config.n_heads * 2 * config.d_head, bias=False)

    def forward(
        self,
        x: Hidden,
        rope: Rope | None,
        bias: AnyBias | None,
        mask: Mask | None,
        values: SharedValues | None = None,
    ) -> Hidden:
        """Return self-attention of whole rows; `values` is unused, since none can be added."""
        if self.window_size is not None:
            mask = (mask or Mask()).within(self.window_size)
        key, value = self._up(self._latents(x, rope))
        out = self.attention(self._queries(x, rope), key, value, mask=mask, bias=bias)
        return self.finish(x, out)

    def init_state(self, batch: int, capacity: int) -> State:
        """Return the empty decoding state."""
        weight = self.kv_down_proj.weight
        return self.attention.init_state(
            batch,
            1,
            self.d_rope + self.d_latent,
            0,
            capacity=capacity,
            device=weight.device,
            dtype=product_dtype(weight),
            window_size=self.window_size,
        )

    def extend(
        self,
        x: Hidden,
        rope: Rope | None,
        bias: AnyBias | None,
        state: State,
        attention_mask: TokenMask | None,
        values: SharedValues | None = None,
        *,
        last: bool = False,
    ) -> tuple[Heads, State]:
        """Return causal attention of new tokens to themselves and to all earlier ones, by head.

        A prompt is computed with keys and values by head, which are narrower than the latents.
        """
        if last or not isinstance(state, LatentCache) or not state.is_empty or x.shape[1] == 1:
            return super().extend(x, rope, bias, state, attention_mask, values, last=last)
        latents = self._latents(x, rope)
        mask = Mask(alignment="start", window_size=self.window_size)
        out = self.attention(self._queries(x, rope), *self._up(latents), mask=mask, bias=bias)
        return out, state.append(latents, latents, attention_mask)

    def _extend(
        self,
        attend: Attend,
        x: Tensor,
        rope: Rope | None,
        state: State,
        attention_mask: Tensor | None,
        values: SharedValues | None,
    ) -> tuple[Tensor, State]:
        latents, query = self._latents(x, rope), self._queries(x, rope)
        if not isinstance(state, LatentCache):  # keys and values, which interception requires
            return attend(query, *self._up(latents), state)
        weight = self.kv_up_proj.weight.view(self.n_heads, 2, self.d_head, self.d_latent)
        of_keys, of_values = weight.unbind(1)  # W_UK and W_UV of each head
        rotated, query = query.split_with_sizes([self.d_rope, self.d_head], -1)
        query = torch.cat([rotated, _by_head(query, of_keys)], -1)
        out, state = attend(query, latents, latents, state)
        latent = out.narrow(-1, self.d_rope, self.d_latent)
        return _by_head(latent, of_values.mT), state

    def _queries(self, x: Tensor, rope: Rope | None) -> Float[Tensor, "b h n r+d"]:
        query = heads_of(self.q_proj(x), self.d_rope + self.d_head)
        return query if rope is None else rotate(query, rope)

    def _latents(self, x: Tensor, rope: Rope | None) -> Float[Tensor, "b 1 n r+c"]:
        """Return each token's rotary key and latent."""
        down: Tensor = self.kv_down_proj(x).unsqueeze(1)
        key, latent = down.split_with_sizes([self.d_rope, self.d_latent], -1)
        key = key if rope is None else rotate(key, rope)
        return torch.cat([key, self.kv_norm(latent)], -1)

    def _up(
        self, latents: Float[Tensor, "b 1 n r+c"]
    ) -> tuple[Float[Tensor, "b h n r+d"], Float[Tensor, "b h n d"]]:
        """Return the keys and values of all heads."""
        rotated, latent = latents.split_with_sizes([self.d_rope, self.d_latent], -1)
        up: Tensor = self.kv_up_proj(latent.squeeze(1))
        both = up.unflatten(-1, (self.n_heads, 2, self.d_head)).transpose(1, 2)
        key, value = both.unbind(3)
        return torch.cat([rotated.expand(-1, self.n_heads, -1, -1), key], -1), value


def _by_head(
    x: Float[Tensor, "b h n i"], weight: Float[Tensor, "h i o"]
) -> Float[Tensor, "b h n o"]:
    """Multiply the vectors of each head by its matrix, without a copy of it for each row."""
    b, h, n, _ = x.shape
    products = x.transpose(0, 1).flatten(1, 2) @ weight
    return products.view(h, b, n, -1).transpose(0, 1)


def _query_projection(config: TransformerConfig, attention: LatentConfig) -> nn.Module:
    """Return the projection to queries, through a normalized latent if there is one."""
    width = config.n_heads * (config.d_head + attention.rotary_width(config.d_head))
    latent = attention.d_query_latent
    if latent is None:
        return nn.Linear(config.d_model, width, bias=config.qkv_bias)
    return nn.Sequential(
        nn.Linear(config.d_model, latent, bias=config.qkv_bias),
        RMSNorm(latent, eps=config.norm_eps),
        nn.Linear(latent, width, bias=False),
    )
