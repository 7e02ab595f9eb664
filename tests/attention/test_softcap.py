"""Softmax of bounded scores, and its scale."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from attention_cases import CONTRACT_DTYPES

from regard.attention import Mask
from regard.attention.config import CHECKED_SHAPE, SoftmaxConfig
from regard.attention.contract import check
from regard.attention.registry import mechanisms
from regard.attention.softcap import SoftcappedSoftmax

Q, K, V = torch.randn(3, 2, 4, 7, 8, generator=torch.Generator().manual_seed(0)).double()
CAUSAL = Mask.causal()
CAPPED = SoftmaxConfig(softcap=0.7, scale_dim=3)


@CONTRACT_DTYPES
def test_it_keeps_the_contract_of_softmax(dtype: torch.dtype) -> None:
    example = partial(CAPPED.build, CHECKED_SHAPE)
    plain = mechanisms()["softmax"]
    capped = replace(plain, example=example, reference=SoftcappedSoftmax.reference)
    outcomes = list(check(capped, dtype=dtype))
    assert len(outcomes) > 50
    assert [outcome for outcome in outcomes if outcome.failure] == []


def test_scores_are_divided_by_the_root_of_a_dimension() -> None:
    own, plain = (SoftmaxConfig(scale_dim=d).build(CHECKED_SHAPE) for d in (2, None))
    torch.testing.assert_close(own(Q / 2, K, V, mask=CAUSAL), plain(Q, K, V, mask=CAUSAL))
    with pytest.raises(ValueError, match="scale_dim = 2 needs scaled = true"):
        SoftmaxConfig(scaled=False, scale_dim=2)
