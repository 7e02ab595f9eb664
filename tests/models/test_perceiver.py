"""The perceiver: causal, with latents of the first tokens."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import Mask
from regard.attention.config import BUILT_IN, AttentionConfig, config_type, supporting
from regard.attention.score_config import SoftmaxOneConfig, StickBreakingConfig
from regard.decoding.step import export_step
from regard.errors import UnsupportedError
from regard.models.builders import LanguageModel
from regard.models.config import PerceiverConfig
from regard.models.head_config import LMHeadConfig
from regard.models.perceiver import PerceiverDecoder
from regard.models.places import PERCEIVER, require_places
from tiny_families import tiny
from tiny_recurrent import VOCABULARY, close

N, M = 12, 5
IDS = torch.randint(VOCABULARY, (2, N), generator=torch.Generator().manual_seed(0))
SIZES: dict[str, Any] = {
    "context_length": N,
    "n_layers": 4,
    "n_heads": 2,
    "d_model": 8,
    "dropout": 0.0,
}
ABLE = [kind for kind in BUILT_IN if all(kind in supporting(one) for one in PERCEIVER)]
checked = settings(deadline=None, derandomize=True, max_examples=25)


def model_of(n_latents: int = M, **options: Any) -> LanguageModel:
    model = tiny(PerceiverConfig(**SIZES, n_latents=n_latents, **options), LMHeadConfig())
    assert isinstance(model, LanguageModel)
    assert isinstance(model.body, PerceiverDecoder)
    return model


def attention(kind: str) -> AttentionConfig:
    made: Any = config_type(kind)
    config: AttentionConfig = made(**made.check_options)
    return config


@torch.no_grad()
def readers(model: LanguageModel, place: int) -> list[int]:
    """The tokens whose logits change with the token at a place."""
    other = IDS.clone()
    other[:, place] = (other[:, place] + 1) % VOCABULARY
    changed = (model(other) != model(IDS)).any(-1).any(0)
    return [int(i) for i in changed.nonzero()]


def test_the_model_is_causal_and_no_token_behind_the_latents_is_read_by_another() -> None:
    for n_latents in (M, N):
        model = model_of(n_latents)
        for place in range(N):
            read = [*range(place, N)] if place < n_latents else [place]
            assert readers(model, place) == read


@torch.no_grad()
def test_hidden_states_are_the_formula() -> None:
    """Every layer, by matrices and masks of whole rows."""
    model = model_of()
    body: Any = model.body

    def attend(layer: Any, query: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        cross = layer.cross_attention
        q, (k, v) = cross.queries(query), cross.keys_and_values(source)
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, float("-inf"))
        out: torch.Tensor = cross.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return out

    def fed(layer: Any, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + layer.feed_forward(layer.norm_feed_forward(x))
        return out

    x = body.embedding(IDS) + body.absolute(torch.arange(N)[None])
    basis = body.down.basis.expand(2, -1, -1)
    latents = fed(body.down, basis + attend(body.down, body.down.norm_attention(basis), x))
    for layer in body.layers:
        latents = layer(latents, None, None, Mask.causal())
    found = fed(body.up, x + attend(body.up, x, body.up.norm_attention(latents)))
    assert close(body(IDS), body.norm(found))


@checked
@given(
    st.sampled_from(ABLE), st.lists(st.integers(1, N), min_size=1, max_size=N), st.integers(1, N)
)
@torch.no_grad()
def test_decoding_in_any_parts_gives_what_whole_rows_give(
    kind: str, sizes: list[int], n_latents: int
) -> None:
    model = model_of(n_latents, attention=attention(kind))
    states, hidden, rest = model.init_state(2, N), [], IDS
    for size in [*sizes, N]:
        part, rest = rest[:, :size], rest[:, size:]
        if part.shape[1]:
            found, states = model.body.extend(part, states)
            hidden.append(found)
    assert close(torch.cat(hidden, 1), model.body(IDS))


def test_the_latents_are_all_that_grows() -> None:
    states = model_of().init_state(2, N)
    assert states.bytes == model_of().init_state(2, M).bytes


def test_compiling_its_decoding_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"compile: .*its cache of latents has fewer slots"):
        export_step(model_of(), 1)


def test_a_mechanism_without_cross_attention_is_refused() -> None:
    config = PerceiverConfig(**SIZES, n_latents=M, attention=StickBreakingConfig())
    with pytest.raises(UnsupportedError, match=r"^stick-breaking attention does not support cross"):
        require_places(config)
    require_places(PerceiverConfig(**SIZES, n_latents=M, attention=SoftmaxOneConfig()))
    assert {"softmax", "gated-softmax", "top-k", "sigmoid"} <= {*ABLE}
