"""All mechanisms by name: what each is, a small one to check, and its oracle."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from typing import Any, Protocol

from jaxtyping import Float
from torch import Tensor

from regard.attention import reference
from regard.attention.base import Attention
from regard.attention.exact import Argmax, Softmax
from regard.attention.features import (
    Elu,
    FavorHyperbolic,
    FavorPositive,
    FavorTrigonometric,
    FeatureMap,
    Fourier,
    Polynomial,
)
from regard.attention.kernel import KernelAttention
from regard.attention.lowrank import Linformer
from regard.attention.mask import Mask
from regard.attention.sparse import BigBird, SlidingWindow
from regard.errors import UserError

GROUP = "regard.attention"
"""The group of entry points by which packages make their mechanisms known."""


class Oracle(Protocol):
    """The matrix that a mechanism applies, in float64."""

    def __call__(
        self,
        attend: Any,
        query: Float[Tensor, "batch heads queries d"],
        key: Float[Tensor, "batch kv_heads keys d"],
        mask: Mask | None,
        bias: Float[Tensor, "heads queries keys"] | None,
        /,
    ) -> Float[Tensor, "batch heads queries keys"]: ...


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A mechanism as the contract, the command line and the docs know it."""

    name: str
    type: type[Attention]
    example: Callable[[], Attention]
    """A small one, for heads of width 4 and up to 16 tokens."""
    oracle: Oracle | None
    """None of a mechanism whose author gave none: it is checked against its own weights."""
    summary: str
    time: str = ""
    """Time for n tokens."""
    state: str = ""
    """Size of what decoding remembers of n tokens."""
    paper: str = ""
    inputs: tuple[float, float] = (-1.5, 1.5)
    """The range of the queries and keys that it is checked with."""


def mechanisms() -> dict[str, Mechanism]:
    """Those of Regard, and those that installed packages make known.

    Raises:
        UserError: a package's mechanism can't be loaded.
    """
    known = dict(OWN)
    for entry in entry_points(group=GROUP):
        try:
            loaded = entry.load()
        except Exception as error:  # whatever a stranger's module does
            raise UserError(f"entry point {entry.name} = {entry.value}: {error}") from error
        known[entry.name] = described(entry.name, loaded)
    return known


def find(name: str) -> Mechanism:
    """A mechanism by its name, or from a file as FILE.py:CLASS.

    Raises:
        UserError: there is none, or it can't be made without arguments.
    """
    found = find_any(name)
    if name not in OWN:
        try:
            signature(found.type).bind()
        except TypeError as error:
            raise UserError(f"{name}: can't be made without arguments: {error}") from None
    return found


def find_any(name: str) -> Mechanism:
    """A mechanism that arguments may be needed to make.

    Raises:
        UserError: there is none.
    """
    path, _, class_name = name.rpartition(":")
    if path.endswith(".py"):
        return described(name, _from_file(Path(path), class_name))
    known = mechanisms()
    if name not in known:
        raise UserError(
            f"{name}: no such mechanism; there are: {', '.join(known)}; or name one of your own "
            "as FILE.py:CLASS"
        )
    return known[name]


def described(name: str, type_: Any) -> Mechanism:
    """A user's own class as a mechanism. It may have an `oracle`, as the ones here do.

    Raises:
        UserError: it isn't a mechanism that can be made.
    """
    if not (isinstance(type_, type) and issubclass(type_, Attention)):
        raise UserError(f"{name}: is no subclass of regard.attention.Attention")
    missing = sorted(getattr(type_, "__abstractmethods__", ()))
    missing += [field for field in ("name", "supports") if not hasattr(type_, field)]
    if missing:
        raise UserError(f"{name}: lacks {', '.join(missing)}")
    return Mechanism(
        name=name,
        type=type_,
        example=type_,
        oracle=getattr(type_, "oracle", None),
        summary=(type_.__doc__ or "").strip().partition("\n")[0],
    )


def able(ability: str) -> list[str]:
    """The names of Regard's mechanisms that have an ability, a mask's field or one of `Support`."""
    return [m.name for m in OWN.values() if m.type.supports.has(ability)]


def _from_file(path: Path, class_name: str) -> Any:
    # A name that no other module has; compiled code and dataclasses look themselves up by it.
    spec = spec_from_file_location(f"regard_user_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserError(f"{path}: no such file")
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a user's module does
        del sys.modules[module.__name__]
        raise UserError(f"{path}: can't be loaded: {type(error).__name__}: {error}") from error
    if not hasattr(module, class_name):
        raise UserError(f"{path}: has no class {class_name!r}; name it as FILE.py:CLASS")
    return getattr(module, class_name)


def _allowed(query: Tensor, key: Tensor, mask: Mask | None) -> Tensor:
    (batch, heads, queries, _), keys = query.shape, key.shape[2]
    dense = (mask or Mask()).to_dense(queries, keys, query.device)
    return dense.expand(batch, heads, queries, keys)


def _exact(
    formula: Callable[..., Tensor],
    _attend: Any,
    query: Tensor,
    key: Tensor,
    mask: Mask | None,
    bias: Tensor | None,
) -> Tensor:
    return formula(query, key, _allowed(query, key, mask), bias)


def _by_blocks(
    attend: Any, query: Tensor, key: Tensor, mask: Mask | None, bias: Tensor | None
) -> Tensor:
    heads, n = query.shape[1:3]
    causal = mask is not None and mask.alignment is not None
    pattern = attend.pattern(heads, n, causal=causal, device=query.device)
    allowed = _allowed(query, key, mask) & pattern.to_dense(n, n, query.device)
    return reference.softmax(query, key, allowed, bias)


def _linformer(
    attend: Any, query: Tensor, key: Tensor, mask: Mask | None, _bias: Tensor | None
) -> Tensor:
    allowed = _allowed(query, key, mask)
    return reference.linformer(query, key, allowed, attend.project_key, attend.project_value)


def _kernel(
    formula: Callable[..., Tensor],
    parameters: tuple[str, ...],
    attend: Any,
    query: Tensor,
    key: Tensor,
    mask: Mask | None,
    _bias: Tensor | None,
) -> Tensor:
    values = {name: getattr(attend.features, name) for name in parameters}
    return formula(query, key, _allowed(query, key, mask), **values)


def _kernel_attention(
    name: str,
    features: Callable[[], FeatureMap],
    formula: Callable[..., Tensor],
    parameters: tuple[str, ...],
    summary: str,
    m: str,
    paper: str,
    inputs: tuple[float, float] = (-1.5, 1.5),
) -> Mechanism:
    return Mechanism(
        name=name,
        type=KernelAttention,
        example=lambda: KernelAttention(features(), chunk=4),
        oracle=partial(_kernel, formula, parameters),
        summary=summary,
        time=f"n·{m}·d",
        state=f"{m}·d",
        paper=paper,
        inputs=inputs,
    )


_ALL = (
    Mechanism(
        name="softmax",
        type=Softmax,
        example=Softmax,
        oracle=partial(_exact, reference.softmax),
        summary="exact attention",
        time="n²·d",
        state="n·d",
        paper="Vaswani et al., 2017",
    ),
    Mechanism(
        name="argmax",
        type=Argmax,
        example=Argmax,
        oracle=partial(_exact, reference.argmax),
        summary="the value of the best key alone, with the softmax's gradient",
        time="n²·d",
        state="n·d",
        paper="Bengio et al., 2013",
    ),
    Mechanism(
        name="linformer",
        type=Linformer,
        example=lambda: Linformer(length=16, k=3),
        oracle=_linformer,
        summary="keys and values mixed down to k rows by learned matrices",
        time="n·k·d",
        state="",
        paper="Wang et al., 2020",
    ),
    Mechanism(
        name="bigbird",
        type=BigBird,
        example=lambda: BigBird(block=2, random=1, global_blocks=1, max_keys=32),
        oracle=_by_blocks,
        summary="a window, global and random blocks",
        time="n·b·d",
        state="n·d",
        paper="Zaheer et al., 2020",
    ),
    Mechanism(
        name="sliding-window",
        type=SlidingWindow,
        example=lambda: SlidingWindow(size=3, block=2),
        oracle=_by_blocks,
        summary="the keys close by",
        time="n·w·d",
        state="n·d",
        paper="Beltagy et al., 2020",
    ),
    _kernel_attention(
        "elu", Elu, reference.elu, (), "φ(x) = elu(x) + 1", "d", "Katharopoulos et al., 2020"
    ),
    _kernel_attention(
        "polynomial",
        Polynomial,
        reference.polynomial,
        ("degree",),
        "φ(q)·φ(k) = (q·k)^p",
        "d^p",
        "Tsai et al., 2019",
        inputs=(0.5, 1.5),
    ),
    _kernel_attention(
        "fourier",
        lambda: Fourier(d=4, features=256),
        reference.fourier,
        ("directions", "sigma"),
        "random waves: the Gaussian kernel",
        "2m",
        "Rahimi & Recht, 2007",
        inputs=(-0.5, 0.5),
    ),
    _kernel_attention(
        "favor-positive",
        lambda: FavorPositive(d=4, features=6),
        reference.favor_positive,
        ("directions",),
        "random exponentials: the softmax kernel",
        "m",
        "Choromanski et al., 2021",
    ),
    _kernel_attention(
        "favor-trigonometric",
        lambda: FavorTrigonometric(d=4, features=256),
        reference.favor_trigonometric,
        ("directions",),
        "random waves: the softmax kernel",
        "2m",
        "Choromanski et al., 2021",
        inputs=(-0.5, 0.5),
    ),
    _kernel_attention(
        "favor-hyperbolic",
        lambda: FavorHyperbolic(d=4, features=6),
        reference.favor_hyperbolic,
        ("directions",),
        "pairs of random exponentials: the softmax kernel",
        "2m",
        "Choromanski et al., 2021",
    ),
)

OWN = {mechanism.name: mechanism for mechanism in _ALL}
"""The mechanisms of Regard by name."""
