"""The models that a page offers. It knows them by number and name; paths stay on this side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import UserError
from regard.explorer.subjects import HUGGING_FACE


@dataclass(frozen=True)
class Offer:
    """A run that may be looked at."""

    name: str
    path: Path
    """Absolute, so that it can be told from all else in a message."""


@dataclass(frozen=True)
class HuggingFaceOffer(Offer):
    """A model of Hugging Face, in a folder or in the local cache."""


def offer(models: Sequence[str]) -> list[Offer]:
    """These models, as `open_subject` takes them, each with a name of its own.

    Raises:
        UserError: one isn't there.
    """
    found: list[Offer] = []
    for model in models:
        kind, name, path = _found(model)
        found.append(kind(_unused(name, {one.name for one in found}), path))
    return found


def find_runs(folder: Path) -> list[str]:
    """All runs below a folder that have weights.

    Raises:
        UserError: there are none.
    """
    found = sorted(weights.parent for weights in folder.rglob("model.safetensors"))
    runs = [str(path) for path in found if (path / "config.toml").is_file()]
    if not runs:
        raise UserError(f"{folder}: holds no trained run; name some, or train one: regard demo")
    return runs


def _found(model: str) -> tuple[type[Offer], str, Path]:
    """What kind of model it is, what it is called, and where it lies."""
    if model.startswith(HUGGING_FACE):
        return HuggingFaceOffer, *_hugging_face(model.removeprefix(HUGGING_FACE))
    path = Path(model)
    if not (path / "config.toml").is_file():
        raise UserError(f"{path}: is no run: it has no config.toml")
    return Offer, path.resolve().name, path.resolve()


def _hugging_face(name: str) -> tuple[str, Path]:
    """A folder goes by its own name, what is in the cache by the name that it has there."""
    from regard.explorer.hugging_face_files import cached_folder, own_folder, require_transformers
    from regard.runs.hugging_face import read_config

    require_transformers()
    own = own_folder(name)
    try:
        folder = (own or cached_folder(name, download=False)).resolve()
    except UserError:
        raise UserError(
            f"hf:{name}: is no folder, and not in Hugging Face's cache; name a folder, or "
            f"fetch it first: regard look hf:{name} TEXT --download"
        ) from None
    read_config(folder)
    return own.name if own else name, folder


def _unused(name: str, taken: set[str]) -> str:
    """The name, or the first of "name (2)", "name (3)", … that is free."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name} ({number})"
    return candidate
