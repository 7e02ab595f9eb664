"""Models without weights: the names and shapes of those with weights, and the same refusals."""

import pytest
import torch

from regard.errors import UserError
from regard.models.builders import make_model
from regard.models.config import DecoderConfig, EncoderConfig, RecurrentConfig
from regard.models.head_config import EmbeddingHeadConfig, LMHeadConfig
from regard.models.uninitialized import make_uninitialized
from tiny_families import FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_names_and_shapes_are_those_of_the_model(family: str) -> None:
    config = FAMILIES[family]
    both_ways = isinstance(config, EncoderConfig) or (
        isinstance(config, RecurrentConfig) and config.bidirectional
    )
    head = EmbeddingHeadConfig() if both_ways else LMHeadConfig()
    both = (make(config, head, 11).state_dict() for make in (make_model, make_uninitialized))
    plain, uninitialized = ({name: x.shape for name, x in state.items()} for state in both)
    assert uninitialized == plain


def test_weights_are_not_drawn() -> None:
    before = torch.get_rng_state()
    make_uninitialized(DecoderConfig(), LMHeadConfig(), 11)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="head"):
        make_uninitialized(EncoderConfig(), LMHeadConfig(), 11)
