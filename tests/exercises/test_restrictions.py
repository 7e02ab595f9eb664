"""Programs that use what their exercise excludes get no points, and the reason names the line."""

from textwrap import indent

import pytest
import torch
from graded import ALL, filled, graded, solution

from regard.exercises.restrictions import ExcludedError, Restrictions, call_restricted

TO_SCALAR = "(-(y * torch.log_softmax({}, 0)).sum())"
DIFFERENTIATED = {
    "grad": f"o.requires_grad_()\nreturn torch.autograd.grad({TO_SCALAR}, o)[0]",
    "backward": f"o.requires_grad = True\n{TO_SCALAR}.backward()\nreturn o.grad",
    "parameter": f"o = torch.nn.Parameter(o)\ntorch.autograd.backward({TO_SCALAR})\nreturn o.grad",
    "inference": (
        "with torch.inference_mode(False):\n    o = torch.nn.Parameter(o)\n"
        f"    torch.autograd.backward({TO_SCALAR})\nreturn o.grad"
    ),
    "enabled": f"with torch.enable_grad():\n    return torch.autograd.grad({TO_SCALAR}, o)[0]",
    "func.grad": f"return torch.func.grad(lambda o: {TO_SCALAR})(o)",
    "jacobian": f"return torch.autograd.functional.jacobian(lambda o: {TO_SCALAR}, o)",
}
CONVERTED = ["np.asarray({})", "{}.numpy()", "np.exp({})", "{}.tolist()", "np.from_dlpack({})"]


@pytest.mark.parametrize("way", DIFFERENTIATED)
def test_autograd_gets_no_points_where_the_problem_excludes_it(way: str) -> None:
    body = indent(DIFFERENTIATED[way].format("o"), "    ")
    found = graded(ALL["softmax_gradient"], filled("softmax_gradient", body))
    assert found.score == 0
    assert found.reason.startswith("uses autograd, which this exercise excludes")
    assert "of its cell)" in found.reason


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # by torch's forward_ad
def test_forward_differentiation_is_excluded_too() -> None:
    body = "    return torch.func.jacfwd(lambda o: o)(o)"
    found = graded(ALL["softmax_gradient"], filled("softmax_gradient", body))
    assert found.reason.startswith("uses autograd")


def test_the_line_that_uses_autograd_is_named() -> None:
    source = solution("recurrent_weight_gradient").replace(
        "    total = torch.zeros_like(w_hh)", "    w_hh.requires_grad_()\n    total = 0", 1
    )
    line = source[: source.index("w_hh.requires")].count("\n") + 1
    reason = graded(ALL["recurrent_weight_gradient"], source).reason
    assert reason.endswith(f"(line {line} of its cell)")


def test_autograd_may_be_used_elsewhere() -> None:
    problems = {name for name, one in ALL.items() if "without autograd" in one.problem}
    assert problems == {name for name, one in ALL.items() if not one.autograd}
    assert len(problems) == 2
    x = torch.ones(2, requires_grad=True)
    (gradient,), _ = call_restricted(
        lambda: torch.autograd.grad((x**2).sum(), x), Restrictions(count_entries=True)
    )
    assert gradient.equal(2 * torch.ones(2))


def test_gradients_may_be_turned_off_without_autograd() -> None:
    def program() -> torch.Tensor:
        with torch.no_grad():
            return torch.ones(2).requires_grad_(False).detach() + 1

    assert call_restricted(program, Restrictions(autograd=False))[0].equal(2 * torch.ones(2))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("conversion", CONVERTED)
def test_an_n_by_n_matrix_of_numpy_gets_no_points(conversion: str) -> None:
    """The entries that NumPy makes can't be counted, so tensors may not be converted."""
    name = "causal_kernel_attention"
    first, second = (conversion.format(x) for x in ("phi_q", "phi_k"))
    body = (
        f"import numpy as np\nweights = np.tril(np.array({first}) @ np.array({second}).T)\n"
        "return torch.tensor(weights / weights.sum(1, keepdims=True)) @ v"
    )
    found = graded(ALL[name], filled(name, indent(body, "    ")))
    assert found.score == 0
    assert found.reason.startswith("takes numbers out of a tensor")
    assert "use torch operations (line" in found.reason


def test_a_list_of_numbers_is_a_conversion_too() -> None:
    x = torch.ones(2)
    for call in (lambda: [float(entry) for entry in x], lambda: [entry.item() for entry in x]):
        with pytest.raises(ExcludedError, match="takes numbers out of a tensor"):
            call_restricted(call, Restrictions(count_entries=True))
    assert call_restricted(lambda: repr(x), Restrictions(count_entries=True))[0] == repr(x)


def test_the_largest_tensor_is_counted() -> None:
    made = call_restricted(lambda: torch.ones(3, 4).sum(), Restrictions(count_entries=True))
    assert made == (12, 12)


def test_arguments_may_be_given_by_name() -> None:
    body = "    return torch.softmax(input=o, dim=-1) - y"
    assert graded(ALL["softmax_gradient"], filled("softmax_gradient", body)).score == 1
