"""Mechanisms in a user's file, which is self-contained and identified by its sha256."""

import ast
import sys
from functools import cache
from hashlib import sha256
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import msgspec

from regard.config import Config
from regard.errors import UserError


def load(path: str, name: str) -> Any:
    """Return the class NAME of the file at a path.

    Raises:
        UserError: there is none, or the file can't be loaded.
    """
    module = _module(path, _read(path))
    if not hasattr(module, name):
        raise UserError(f"{path}: has no class {name!r}; name it as FILE.py:CLASS")
    return getattr(module, name)


def kinds_in(path: str) -> list[str]:
    """Return FILE.py:CLASS for each class of a file that has a base class; the file isn't run.

    Raises:
        UserError: there is no such file, or it isn't Python.
    """
    try:
        code = ast.parse(_read(path), path)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{path}: can't be loaded: {type(error).__name__}: {error}") from None
    classes = (each for each in code.body if isinstance(each, ast.ClassDef) and each.bases)
    return [f"{path}:{each.name}" for each in classes]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        raise UserError(f"{path}: no such file") from None


@cache
def _module(path: str, content: bytes) -> ModuleType:
    """Run a file as a module; the same content at the same path is the same module."""
    # A unique name, by which compiled code and dataclasses find the module.
    module = ModuleType(f"regard_custom_{Path(path).stem}_{sha256(content).hexdigest()[:12]}")
    module.__file__ = path
    sys.modules[module.__name__] = module
    try:
        exec(compile(content, path, "exec"), vars(module))
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        del sys.modules[module.__name__]
        raise UserError(f"{path}: can't be loaded: {type(error).__name__}: {error}") from error
    return module


def split_signature(
    kind: str, class_: type, supplied: frozenset[str]
) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Split a class's keyword-only arguments into options, as struct fields, and supplied names.

    Raises:
        UserError: a required argument isn't keyword-only.
    """
    try:
        hints = get_type_hints(class_.__init__, include_extras=True)  # type: ignore[misc]
    except Exception as error:  # an annotation may be any text
        raise UserError(
            f"{kind}: the types of its arguments can't be read: {type(error).__name__}: {error}"
        ) from error
    options: list[Any] = []
    for name, parameter in signature(class_).parameters.items():
        if parameter.kind is not Parameter.KEYWORD_ONLY:
            if parameter.kind is not Parameter.VAR_KEYWORD and parameter.default is Parameter.empty:
                raise UserError(f"{kind}: {name} is not a keyword-only argument: write * before it")
        elif name not in supplied:
            field = (name, hints.get(name, Any))
            given = parameter.default is not Parameter.empty
            options.append((*field, parameter.default) if given else field)
    return tuple(options), tuple(supplied & signature(class_).parameters.keys())


def tagged(
    kind: str, base: type, options: tuple[Any, ...], namespace: dict[str, Any]
) -> type[Config]:
    """Make a configuration struct with the kind as its tag."""
    bases = (base,) if issubclass(base, Config) else (base, Config)
    docs = {"option_docs": {name: _description(type_) for name, type_, *_ in options}}
    try:
        return msgspec.defstruct(  # type: ignore[return-value]
            f"{kind.rpartition(':')[2]}Config",
            options,
            bases=bases,
            namespace=namespace | docs,
            frozen=True,
            kw_only=True,
            tag_field="kind",
            tag=kind,
        )
    except TypeError as error:
        raise UserError(f"{kind}: {error}") from None


def _description(type_: Any) -> str:
    """Return the description in an option's annotation."""
    metas = [meta for meta in getattr(type_, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    return next((meta.description for meta in metas if meta.description), "")
