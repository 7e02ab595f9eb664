"""Parameters of studies, drawn from their types and bounds."""

import math
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import Meta

from regard.studies.study import Study

MOST = 16
"""Whole numbers beyond this are drawn up to their default, which bounds the work."""


def parameters(study: Study[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for some of the parameters; the others keep their defaults."""
    hints = get_type_hints(study.function, include_extras=True)
    drawn = {
        name: values(hints[name], default)
        for name, default in study.defaults.items()
        if name != "seed"
    }
    return st.fixed_dictionaries({}, optional=drawn)


def values(hint: Any, default: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a type with bounds."""
    kind, meta = _split(hint)
    origin = get_origin(kind)
    if origin is Literal:
        return st.sampled_from(get_args(kind))
    if origin is tuple:
        (element, *_), given = get_args(kind), default[0] if default else None
        low, high = meta.min_length or 0, meta.max_length or 4
        return st.lists(values(element, given), min_size=low, max_size=high).map(tuple)
    if kind is int:
        return _whole_numbers(meta, default)
    if kind is float:
        return st.floats(*_limits(meta), allow_nan=False)
    if kind is bool:
        return st.booleans()
    assert kind is str, kind
    return st.text(min_size=meta.min_length or 0, max_size=200)


def _whole_numbers(meta: Meta, default: int | None) -> st.SearchStrategy[int]:
    low, high = (int(limit) for limit in _limits(meta))
    step = int(meta.multiple_of or 1)
    high = min(high, max(default or MOST, low, MOST))
    return st.integers(math.ceil(low / step), high // step).map(lambda x: x * step)


def _limits(meta: Meta) -> tuple[float, float]:
    low = meta.ge if meta.ge is not None else meta.gt
    high = meta.le if meta.le is not None else meta.lt
    tiny = 1e-3 if meta.gt is not None else 0
    return (
        float(low) + tiny if low is not None else -100.0,
        float(high) if high is not None else 100.0,
    )


def _split(hint: Any) -> tuple[Any, Meta]:
    """The type, and its bounds."""
    if get_origin(hint) is not Annotated:
        return hint, Meta()
    kind, *annotations = get_args(hint)
    return kind, next((one for one in annotations if isinstance(one, Meta)), Meta())
