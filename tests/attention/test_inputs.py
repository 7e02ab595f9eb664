"""Inputs of the library that don't fit are refused in a sentence, before a kernel sees them."""

import pytest
import torch
from torch import Tensor

from regard.attention import Mask, Softmax
from regard.attention.contract_cases import Cases
from regard.attention.registry import mechanisms

X = torch.zeros(2, 4, 6, 8)


@pytest.mark.parametrize("name", mechanisms())
def test_inputs_of_other_kinds_are_refused(name: str) -> None:
    mechanism = mechanisms()[name]
    attend = mechanism.example()
    case = Cases(mechanism, torch.float32, torch.device("cpu"), attend).plain()
    gates = case.gates

    def refused(query: Tensor, key: Tensor, value: Tensor, mask: object, says: str) -> None:
        with pytest.raises((TypeError, ValueError), match=says) as error:
            attend(query, key, value, mask=mask, gates=gates)
        assert "\n" not in str(error.value)

    query, key, value, mask = case.query, case.key, case.value, case.mask
    refused(query[0], key[0], value[0], mask, "expected four axes: batch, heads, tokens, width")
    refused(
        query, key, value, torch.ones(11, 11).bool(), r"is a Tensor: expected a Mask; .*dense\("
    )
    refused(query.long(), key.long(), value.long(), mask, "torch.int64 .* expected one floating")
    refused(query, key.double(), value, mask, "torch.float64 .* expected one floating type")
    refused(query, key.to("meta"), value, mask, "cpu, meta and cpu: expected one device")


def test_autocast_may_mix_types() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        out = Softmax()(X, X.bfloat16(), X, mask=Mask.causal())
    assert out.shape == X.shape
