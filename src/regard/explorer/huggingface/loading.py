"""Load Hugging Face models and tokenizers from folders, without pickles and custom code."""

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import cache
from io import StringIO
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import torch

from regard.errors import UserError, first_line, require_packages
from regard.files import expanded
from regard.huggingface.convert.folder import read_config, weight_files

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

_DOWNLOADED = ("*.json", "*.safetensors", "*.txt", "*.model")
"""Files to download: configuration, weights, vocabulary."""
_VOCABULARIES = (
    *("tokenizer.json", "vocab.json", "vocab.txt"),
    *("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "source.spm"),
)
"""Vocabulary files; a tokenizer needs at least one of them."""
_OPTIONAL = ("pooler", "final_logits_bias")
"""Weights that may be missing, because neither attention nor generation needs them."""
_HEADED = ("AutoModelForCausalLM", "AutoModelForMaskedLM")
"""Classes that add a head to a base model, which also works without it."""
_OFFLINE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def require_transformers() -> None:
    """Check that transformers is installed.

    Raises:
        UserError: it isn't installed.
    """
    require_packages("Hugging Face models need", "hf", "transformers")


def named_folder(name: str, *, download: bool) -> tuple[str, Path]:
    """Return the name of a model and its folder, a local one or one in Hugging Face's cache.

    `download` may fill the cache.

    Raises:
        UserError: there is no such folder, and the model isn't in the cache or can't be downloaded.
    """
    if name and (local := expanded(name)).is_dir():
        return local.absolute().name, local
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(
            name,
            local_files_only=not download,
            allow_patterns=list(_DOWNLOADED),
            ignore_patterns="*/*",
        )
    except (OSError, ValueError) as error:
        reason = (
            f"can't be downloaded: {first_line(error)}"
            if download
            else "is no folder, no GGUF file and not in Hugging Face's cache; see --download"
        )
        raise UserError(f"hf:{name}: {reason}") from None
    return name, Path(found)


def load_model(folder: Path, *, device: torch.device) -> "PreTrainedModel":
    """Load the model of a folder, in evaluation mode.

    Raises:
        UserError: something is missing, damaged or pickled, or needs code outside transformers.
    """
    from transformers import AutoConfig, AutoModel

    _require_known_code(folder, read_config(folder))
    weight_files(folder)
    with quiet(), _errors_in_one_line(folder, "model"):
        config = AutoConfig.from_pretrained(folder, **_OFFLINE)
        kind = _class_of(config)
        model, missing = _loaded(folder, config, kind)
        body = f"{model.base_model_prefix}."
        if kind.__name__ in _HEADED and not all(name.startswith(body) for name in missing):
            model, missing = _loaded(folder, config, AutoModel)  # the head is missing
    lacking = sorted(k for k in missing if not any(part in k for part in _OPTIONAL))
    if lacking:
        raise UserError(
            f"{folder}: the weights lack {lacking[0]} and {len(lacking) - 1} others; "
            "save the whole model"
        )
    loaded: PreTrainedModel = model.to(device).eval()
    return loaded


def gguf_file(name: str | Path) -> Path | None:
    """Return the GGUF file of that name, if there is one."""
    place = expanded(name)
    return place if place.suffix == ".gguf" and place.is_file() else None


def load_gguf(
    file: Path, *, device: torch.device
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Load the decoder and the tokenizer of a GGUF file; its weights are dequantized to float32.

    Raises:
        UserError: a package isn't installed, or the file can't be loaded.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    require_packages(f"{file}: needs", "gguf", "gguf", "accelerate")
    given: dict[str, Any] = {"gguf_file": file.name, **_OFFLINE}
    # Standard error is redirected because the progress bar can't be switched off.
    with quiet(), redirect_stderr(StringIO()), _errors_in_one_line(file, "model"), _parsed_once():
        model: Any = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **given)
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **given)
    return model.to(device).eval(), tokenizer


@contextmanager
def _parsed_once() -> Iterator[None]:
    """Parse a GGUF file once in the with block, which must be quiet.

    transformers parses it for the configuration, the weights and the tokenizer, and makes the table
    of tensor names for each module.
    """
    import gguf

    names = ("GGUFReader", "get_tensor_name_map")
    before = {name: getattr(gguf, name) for name in names}
    vars(gguf).update({name: cache(function) for name, function in before.items()})
    try:
        yield
    finally:
        vars(gguf).update(before)


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of a folder.

    Raises:
        UserError: there is none, or it can't be loaded.
    """
    from transformers import AutoTokenizer

    if not any((folder / name).is_file() for name in _VOCABULARIES):
        raise UserError(f"{folder}: has no tokenizer, such as tokenizer.json; save it there too")
    with quiet(), _errors_in_one_line(folder, "tokenizer"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, **_OFFLINE)
    return tokenizer


def _class_of(config: "PreTrainedConfig") -> Any:
    """Return the class to load: with a head that predicts tokens, if saved with one."""
    from transformers import (
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
        AutoModelForSeq2SeqLM,
    )
    from transformers.models.auto import modeling_auto

    if config.is_encoder_decoder:
        return AutoModelForSeq2SeqLM
    saved, kind = config.architectures or [], config.model_type
    if modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind) in saved:
        return AutoModelForCausalLM
    if modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.get(kind) in saved:
        return AutoModelForMaskedLM
    return AutoModel


def _loaded(folder: Path, config: "PreTrainedConfig", kind: Any) -> tuple[Any, list[str]]:
    """Load a model of a class; return it and the names of its missing weights."""
    model, found = kind.from_pretrained(
        folder, config=config, use_safetensors=True, output_loading_info=True, **_OFFLINE
    )
    return model, list(found["missing_keys"])


_ONE_THREAD = RLock()
"""Held while settings of the whole process are changed."""


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings and progress bars of transformers in the with block.

    Other threads wait: its settings, and what `_parsed_once` replaces, are of the whole process.
    """
    from transformers.utils import logging

    with _ONE_THREAD:
        level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()


def _require_known_code(folder: Path, hf: dict[str, Any]) -> None:
    """Check that transformers supports the model without custom code."""
    from transformers import CONFIG_MAPPING, __version__

    kind = hf.get("model_type")
    if kind in CONFIG_MAPPING:
        return
    why = "needs custom code, which isn't run" if "auto_map" in hf else "is unknown"
    raise UserError(
        f"{folder}: model_type {kind} {why}; choose a model that transformers {__version__} has"
    )


@contextmanager
def _errors_in_one_line(folder: Path, what: str) -> Iterator[None]:
    """Turn exceptions of transformers into one-line errors."""
    try:
        yield
    except Exception as error:
        raise UserError(f"{folder}: the {what} can't be loaded: {first_line(error)}") from None
