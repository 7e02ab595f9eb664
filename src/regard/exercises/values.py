"""Values of exercises: convert them to JSON and Python source, and compare them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

SEPARATE = 1e-2
"""Smallest relative difference between a right result and that of a typical mistake."""


class Other:
    """A value of an unsupported type, such as a set or a complex tensor."""

    def __init__(self, name: str) -> None:
        self.name = name


# As JSON: numbers, texts and lists as they are, a tensor as {"tensor", "shape", "dtype"}


def encode(value: Any) -> Any:
    """Return a value as JSON; tuples become lists, and arrays tensors."""
    if isinstance(value, np.ndarray | np.generic):
        value = torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value.item()
    if isinstance(value, Tensor):
        return _encode_tensor(value.detach())
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    return {"other": type(value).__name__}


def _encode_tensor(value: Tensor) -> dict[str, Any]:
    if value.is_complex():
        return {"other": "tensor of complex numbers"}
    kind = str(value.dtype).removeprefix("torch.")
    return {"tensor": value.flatten().tolist(), "shape": list(value.shape), "dtype": kind}


def decode(value: Any) -> Any:
    """Return the value of JSON; tensors are of float64, int64 or bool."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "other" in value:
        return Other(str(value["other"]))
    dtype = getattr(torch, value["dtype"])
    tensor = torch.tensor(value["tensor"], dtype=torch.float64).reshape(value["shape"])
    if not dtype.is_floating_point:
        return tensor.to(torch.bool if dtype is torch.bool else torch.int64)
    # Rounded to the student's precision, from which the tolerance follows.
    return tensor.float() if torch.finfo(dtype).bits <= 32 else tensor


def literal(value: Any, indent: str = "    ") -> str:
    """Return Python source of a value, for a notebook."""
    if isinstance(value, Tensor):
        dtype = "" if value.dtype is torch.float64 else f", dtype={value.dtype}"
        rows = value.tolist()
        if value.ndim < 2:
            return f"torch.tensor({rows}{dtype})"
        inner = "".join(f"{indent}    {row},\n" for row in rows)
        return f"torch.tensor([\n{inner}{indent}]{dtype})"
    return repr(value)


# Compared


def wrong_form(found: Any, expected: Any) -> str:
    """Return the error in the type or shape of a result, or ""."""
    if isinstance(expected, Tensor):
        if not isinstance(found, Tensor):
            return f"returned {_kind(found)}, not a tensor of shape {list(expected.shape)}"
        if found.shape != expected.shape:
            return f"returned shape {list(found.shape)}, not {list(expected.shape)}"
        return ""
    if isinstance(expected, list):
        if not isinstance(found, list):
            values = f"{len(expected)} values" if _nested(expected) else "a list"
            return f"returned {_kind(found)}, not {values}"
        if _nested(expected) and len(found) != len(expected):
            return f"returned {len(found)} values, not {len(expected)}"
        pairs = zip(found, expected, strict=True) if _nested(expected) else ()
        return next((reason for pair in pairs if (reason := wrong_form(*pair))), "")
    if isinstance(expected, str):
        return "" if isinstance(found, str) else f"returned {_kind(found)}, not a text"
    return "" if _number(found) is not None else f"returned {_kind(found)}, not a number"


def difference(found: Any, expected: Any, tolerance: float | None = None) -> str:
    """Return the difference of a result from the expected one, in one line, or "".

    Numbers may differ by `tolerance`, by default √ε of the result's precision, relative to the
    largest expected entry. NaN and infinity equal themselves.
    """
    if reason := wrong_form(found, expected):
        return reason
    if isinstance(expected, list) and _nested(expected):
        pairs = zip(found, expected, strict=True)
        return next((r for pair in pairs if (r := difference(*pair, tolerance))), "")
    if isinstance(expected, list):
        found, expected = [_number(x) for x in found], [_number(x) for x in expected]
    if isinstance(expected, list | str):
        return "" if found == expected else "returned another result"
    expected = _as_tensor(expected)
    return _numbers_apart(_as_tensor(found).reshape(expected.shape), expected, tolerance)


def _numbers_apart(found: Tensor, expected: Tensor, tolerance: float | None) -> str:
    dtype = found.dtype if found.dtype.is_floating_point else torch.float64
    allowed = math.sqrt(torch.finfo(dtype).eps) if tolerance is None else tolerance
    found, expected = found.double(), expected.double()
    finite = expected.isfinite()
    if not found[~finite].nan_to_num(7.0).equal(expected[~finite].nan_to_num(7.0)):
        return "returned other entries where the expected ones aren't finite"
    if not found[finite].isfinite().all():
        return f"returned entries that are {'NaN' if found.isnan().any() else 'infinite'}"
    scale = (float(expected[finite].abs().max()) if finite.any() else 0.0) or 1.0
    error = float((found - expected)[finite].abs().max()) / scale if finite.any() else 0.0
    return "" if error <= allowed else f"the largest error is {error:.2g} of the largest entry"


def _as_tensor(number: Any) -> Tensor:
    if isinstance(number, Tensor):
        return number
    return torch.tensor(_number(number), dtype=torch.float64)


def _nested(items: Sequence[Any]) -> bool:
    """Return whether a list holds several results, not the tokens of one."""
    return any(isinstance(item, Tensor | list | float) for item in items)


def _number(value: Any) -> float | None:
    one = isinstance(value, bool | int | float) or (
        isinstance(value, Tensor) and value.numel() == 1
    )
    try:
        return float(value) if one else None
    except OverflowError:
        return math.inf


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    name = value.name if isinstance(value, Other) else type(value).__name__.lower()
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
