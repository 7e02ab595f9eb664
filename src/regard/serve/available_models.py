"""The models of a page. The page refers to them by index and name; paths stay on the server."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from regard.errors import RegardError, UserError
from regard.explorer.adapters import HUGGING_FACE
from regard.files import read_table
from regard.huggingface.convert.folder import read_config
from regard.models.config import EncoderDecoderConfig, RecurrentEncoderDecoderConfig
from regard.models.head_config import LMHeadConfig
from regard.runs.recipe import answers_questions, load_recipe, require_run
from regard.serve.errors import public_message

_SEQ2SEQ = EncoderDecoderConfig | RecurrentEncoderDecoderConfig
_CAUSAL = ("ForCausalLM", "LMHeadModel")
"""Suffixes of Hugging Face class names of models that predict the next token."""
EXAMPLE = "The trophy doesn't fit into the suitcase because it is too large."
"""Text for models whose training data is unknown (a Winograd schema; Levesque et al., 2012)."""


@dataclass(frozen=True)
class AvailableModel:
    """A run on disk."""

    name: str
    path: Path
    """Absolute, so that it can be found and replaced in a message."""

    def info(self) -> dict[str, Any]:
        """Return a description, an example text, and whether the run generates, and how.

        A run answers if it is a causal language model that was trained on questions. A run with a
        template, such as that of questions, can also continue texts without it.
        """
        recipe = load_recipe(self.path)
        generates = isinstance(recipe.head, LMHeadConfig)
        seq2seq = isinstance(recipe.model, _SEQ2SEQ)
        causal = generates and not seq2seq
        origin = read_table(self.path / "origin.json")
        template = causal and answers_questions(recipe, origin)
        return {
            "description": f"{recipe.model.__struct_config__.tag}, {recipe.model.summary}",
            "example": origin.get("example", ""),
            "generates": generates,
            "seq2seq": seq2seq,
            "answers": template and recipe.task is None,
            "template": template,
        }


@dataclass(frozen=True)
class AvailableHuggingFaceModel(AvailableModel):
    """A Hugging Face model, in a folder or in the local cache."""

    def info(self) -> dict[str, Any]:
        """Return the same fields as for a run."""
        config = read_config(self.path)
        seq2seq = bool(config.get("is_encoder_decoder"))
        saved = config.get("architectures") or []
        return {
            "description": f"Hugging Face {config.get('model_type', 'model')}",
            "example": EXAMPLE,
            "generates": seq2seq or any(str(name).endswith(_CAUSAL) for name in saved),
            "seq2seq": seq2seq,
            "answers": False,
            "template": False,
        }


def find_models(names: Sequence[str]) -> list[AvailableModel]:
    """Resolve runs and hf: models, giving each a unique name.

    Raises:
        UserError: one doesn't exist.
    """
    found: list[AvailableModel] = []
    for given in names:
        kind, name, path = _resolve(given)
        found.append(kind(_unique(name, {one.name for one in found}), path))
    return found


def find_runs(folder: Path) -> list[str]:
    """Return all trained runs below a folder; those in hidden folders are unfinished copies.

    Raises:
        UserError: there are none.
    """
    found = sorted(weights.parent for weights in folder.rglob("model.safetensors"))
    shown = (p for p in found if not any(x.startswith(".") for x in p.relative_to(folder).parts))
    runs = [str(path) for path in shown if (path / "config.toml").is_file()]
    if not runs:
        raise UserError(f"{folder}: holds no trained run; name some, or train one: regard demo")
    return runs


def model_info(model: AvailableModel) -> dict[str, Any]:
    """Describe a model without loading it; the description of a damaged one is the error."""
    try:
        found = model.info()
    except RegardError as error:
        unable = dict.fromkeys(("generates", "seq2seq", "answers", "template"), False)
        found = {"description": public_message(error, model), "example": "", **unable}
    return {"name": model.name, **found}


def _resolve(given: str) -> tuple[type[AvailableModel], str, Path]:
    if given.startswith(HUGGING_FACE):
        return AvailableHuggingFaceModel, *_hugging_face(given.removeprefix(HUGGING_FACE))
    path = require_run(Path(given), or_hugging_face=True).resolve()
    return AvailableModel, path.name, path


def _hugging_face(name: str) -> tuple[str, Path]:
    """Return name and path; a folder is named after itself, a cached model as in the cache."""
    from regard.explorer.huggingface.loading import named_folder, require_transformers

    require_transformers()
    try:
        shown, folder = named_folder(name, download=False)
    except UserError:
        raise UserError(
            f"hf:{name}: is no folder, and not in Hugging Face's cache; name a folder, or "
            f"fetch it first: regard look hf:{name} TEXT --download"
        ) from None
    read_config(folder)
    return shown, folder.resolve()


def _unique(name: str, taken: set[str]) -> str:
    """Return the name, or the first free one of "name (2)", "name (3)", …"""
    names = chain([name], (f"{name} ({number})" for number in count(2)))
    return next(one for one in names if one not in taken)
