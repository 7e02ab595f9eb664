"""Embeddings of n-grams against their formula."""

from itertools import chain
from math import gcd
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.errors import UserError
from regard.models.builders import make_model
from regard.models.head_config import LMHeadConfig
from regard.models.ngram_config import NgramConfig
from regard.models.ngrams import NgramEmbedding
from regard.models.transformer import Decoder
from regard.positions.config import SinusoidalConfig
from tiny_models import BLOCK, VOCABULARY, tiny_config, tiny_model
from tiny_recurrent import close, sharp

WIDTH = 12
configs = st.builds(
    NgramConfig,
    longest=st.integers(2, 5),
    slots=st.integers(1, 40),
    hashes=st.sampled_from([1, 2, 3]),
)
ids_of = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12)
checked = settings(deadline=None, derandomize=True, max_examples=40)


def embedding_of(config: NgramConfig) -> NgramEmbedding:
    return sharp(NgramEmbedding(config, WIDTH)).requires_grad_(requires_grad=False)


def plainly(module: NgramEmbedding, config: NgramConfig, ids: list[int]) -> Tensor:
    """One n-gram, one table at a time, in Python's integers."""
    tables, part = module.tables.weight, WIDTH // config.hashes
    out = torch.zeros(len(ids), WIDTH, dtype=tables.dtype)
    for i in range(len(ids)):
        for n in range(2, min(config.longest, i + 1) + 1):
            for k, base in enumerate(config.multipliers):
                row = sum(base**j * ids[i - j] for j in range(n)) % config.slots
                row += ((n - 2) * config.hashes + k) * config.slots
                out[i, k * part : (k + 1) * part] += tables[row]
    return out


@checked
@given(configs, ids_of)
def test_it_is_its_formula(config: NgramConfig, ids: list[int]) -> None:
    module = embedding_of(config)
    assert close(module(torch.tensor([ids]))[0], plainly(module, config, ids))


@checked
@given(configs, st.lists(ids_of, min_size=1, max_size=4))
def test_it_stops_at_the_borders_of_documents(config: NgramConfig, texts: list[list[int]]) -> None:
    module = embedding_of(config)
    lengths = torch.tensor([len(text) for text in texts])
    document_ids = torch.arange(len(texts)).repeat_interleave(lengths)[None]
    whole = module(torch.tensor([[*chain(*texts)]]), document_ids)
    assert close(whole[0], torch.cat([plainly(module, config, text) for text in texts]))


@checked
@given(configs, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_in_pieces_of_unequal_length_it_is_the_same(
    config: NgramConfig, pieces: list[tuple[int, int]]
) -> None:
    """Two rows; of each piece a row takes as many tokens as it says, and is padded behind."""
    module = embedding_of(config)
    drawn = torch.Generator().manual_seed(0)
    longest = max(1, *(sum(piece[row] for piece in pieces) for row in (0, 1)))
    ids = torch.randint(VOCABULARY, (2, longest), generator=drawn)
    whole, before, done = module(ids), module.first_ids(2), [0, 0]
    for piece in pieces:
        new = torch.full((2, max(*piece, 1)), VOCABULARY - 1)
        keep = torch.zeros_like(new, dtype=torch.bool)
        for row, n in enumerate(piece):
            new[row, :n], keep[row, :n] = ids[row, done[row] : done[row] + n], True
        out, before = module.extend(new, before, keep)
        for row, n in enumerate(piece):
            assert torch.equal(out[row, :n], whole[row, done[row] : done[row] + n])
            done[row] += n


@given(configs)
def test_multipliers_are_units(config: NgramConfig) -> None:
    """So that bigrams with one token in common never share a row."""
    assert all(gcd(a, config.slots) == 1 for a in config.multipliers)
    assert len(config.multipliers) == config.hashes


@torch.no_grad()
@pytest.mark.parametrize("options", [{}, {"positions": SinusoidalConfig(combine="concatenate")}])
def test_they_are_added_to_the_embeddings_of_tokens(options: dict[str, Any]) -> None:
    """Before these are scaled; with embeddings that are sums, a model without n-grams is equal."""
    ids = torch.randint(VOCABULARY, (2, BLOCK))
    model = tiny_model(ngrams=NgramConfig(slots=7), scale_embeddings=True, **options)
    plain = tiny_model(scale_embeddings=True, **options)
    plain.load_state_dict(model.state_dict(), strict=False)
    body = model.body
    assert isinstance(body, Decoder)
    assert body.ngrams is not None
    added = body.embedding(ids) + body.ngrams(ids)
    plain.body.embedding.register_forward_hook(lambda *_: added)
    assert close(plain(ids), model(ids))


def test_parameters_are_counted() -> None:
    plain, config = tiny_model(), NgramConfig(longest=4, slots=9, hashes=4)
    model = tiny_model(ngrams=config)
    hashed = config.n_parameters(16)
    assert hashed == 3 * 9 * 16
    sizes = [sum(p.numel() for p in one.parameters()) for one in (model, plain)]
    assert sizes[0] - sizes[1] == hashed


def test_huge_tables_are_refused_before_they_are_made() -> None:
    config = tiny_config(ngrams=NgramConfig(slots=10**9, longest=8))
    with pytest.raises(UserError, match="memory"):
        make_model(config, LMHeadConfig(), VOCABULARY)
