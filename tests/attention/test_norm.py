"""The RMS norm against that of torch, in all precisions."""

import pytest
import torch
import torch.nn.functional as F

from regard.attention.norm import RMSNorm, ZeroCenteredRMSNorm
from tiny_recurrent import normal, sharp

D = 12
PRECISIONS = (torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.usefixtures("all_warnings")
@pytest.mark.parametrize("weight", PRECISIONS)
@pytest.mark.parametrize("given", PRECISIONS)
@pytest.mark.parametrize("autocast", [False, True])
def test_an_rms_norm_takes_any_precision(
    given: torch.dtype, weight: torch.dtype, autocast: bool
) -> None:
    """Without a warning, which is an error here; in half precision, with the results of torch."""
    norm = sharp(RMSNorm(D, eps=1e-6)).to(weight)
    x = normal(2, 5, D).to(given)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = norm(x)
        if given == weight == torch.bfloat16:
            assert torch.equal(found, F.rms_norm(x, (D,), norm.weight, 1e-6))
    assert found.dtype == given
    exact = F.rms_norm(x.double(), (D,), norm.weight.double(), 1e-6)
    # One rounding to the result, and two operations in the higher precision.
    torch.testing.assert_close(
        found.double(), exact, rtol=8 * torch.finfo(given).eps, atol=torch.finfo(given).tiny
    )


@pytest.mark.usefixtures("all_warnings")
@pytest.mark.parametrize("weight", PRECISIONS)
@pytest.mark.parametrize("given", PRECISIONS)
def test_a_zero_centered_norm_keeps_small_weights_in_any_precision(
    given: torch.dtype, weight: torch.dtype
) -> None:
    """1 + w isn't rounded to bfloat16, whose numbers from 1 are 2⁻⁷ apart."""
    norm = ZeroCenteredRMSNorm(D, eps=1e-6).to(weight)
    norm.weight.data.copy_(1e-3 * normal(D))
    x = normal(2, 5, D).to(given)
    exact = F.rms_norm(x.double(), (D,), 1 + norm.weight.double(), 1e-6)
    found = norm(x)
    assert found.dtype == given
    torch.testing.assert_close(
        found.double(), exact, rtol=8 * torch.finfo(given).eps, atol=torch.finfo(given).tiny
    )
    if given == torch.float32:
        assert float((found - F.rms_norm(x, (D,), eps=1e-6)).detach().abs().max()) > 1e-4


def test_gradients_are_those_of_torch() -> None:
    """Also at a row of zeros, where the length has no gradient."""
    norm = sharp(RMSNorm(D, eps=1e-6)).double()
    x = normal(2, 5, D).double()
    x[0, 0] = 0
    x.requires_grad_()
    given, tensors = normal(2, 5, D).double(), [x, norm.weight]
    found = torch.autograd.grad(norm(x), tensors, given)
    exact = torch.autograd.grad(F.rms_norm(x, (D,), norm.weight, 1e-6), tensors, given)
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
