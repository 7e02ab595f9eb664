"""Models and tokenizers of Hugging Face from a folder. No pickle is read, no code in it run."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.errors import UserError
from regard.runs.hugging_face import read_config, weight_files

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

_WANTED = ("*.json", "*.safetensors", "*.txt", "*.model")
"""What is fetched of a model: configuration, weights, vocabulary."""
_VOCABULARIES = (
    *("tokenizer.json", "vocab.json", "vocab.txt"),
    *("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "source.spm"),
)
"""Files of which a tokenizer has one."""
_SPARE = ("pooler", "final_logits_bias")
"""Parts that may be missing in a file: neither attention nor what a model writes needs them."""
_HEADED = ("AutoModelForCausalLM", "AutoModelForMaskedLM")
"""Classes that add a head to a body, which can be looked at without it."""
_OFFLINE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def require_transformers() -> None:
    """Refuse to go on without the package.

    Raises:
        UserError: it isn't installed.
    """
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise UserError(
            "models of Hugging Face need transformers; install it: pip install 'regard[hf]'"
        ) from None


def own_folder(name: str | Path) -> Path | None:
    """The folder that a user names, if it is one."""
    place = Path(name)
    with suppress(RuntimeError):  # "~nobody" has no home, and is no folder
        place = place.expanduser()
    return place.absolute() if str(name) and place.is_dir() else None


def cached_folder(name: str, *, download: bool) -> Path:
    """The folder of a model in Hugging Face's cache, which may be fetched only if that is allowed.

    Raises:
        UserError: there is none.
    """
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(
            name,
            local_files_only=not download,
            allow_patterns=list(_WANTED),
            ignore_patterns="*/*",
        )
    except (OSError, ValueError) as error:
        reason = (
            f"can't be fetched: {str(error).splitlines()[0]}"
            if download
            else "is no folder, and not in Hugging Face's cache; name a folder, or try --download"
        )
        raise UserError(f"hf:{name}: {reason}") from None
    return Path(found)


def read_model(folder: Path, *, device: torch.device) -> "PreTrainedModel":
    """The model in a folder, ready to be looked at.

    Raises:
        UserError: something is missing or damaged, pickled, or needs code that isn't transformers'.
    """
    from transformers import AutoConfig, AutoModel

    _require_own_code(folder, read_config(folder))
    weight_files(folder)
    with quiet(), _told(folder, "model"):
        config = AutoConfig.from_pretrained(folder, **_OFFLINE)
        kind = _class_of(config)
        model, missing = _loaded(folder, config, kind)
        body = f"{model.base_model_prefix}."
        if kind.__name__ in _HEADED and not all(name.startswith(body) for name in missing):
            model, missing = _loaded(folder, config, AutoModel)  # the head isn't there
    lacking = sorted(k for k in missing if not any(part in k for part in _SPARE))
    if lacking:
        raise UserError(
            f"{folder}: its weights lack {lacking[0]} and {len(lacking) - 1} others; "
            "save the model whole"
        )
    read: PreTrainedModel = model.to(device).eval()
    return read


def read_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """The tokenizer in a folder.

    Raises:
        UserError: there is none that can be read.
    """
    from transformers import AutoTokenizer

    if not any((folder / name).is_file() for name in _VOCABULARIES):
        raise UserError(f"{folder}: has no tokenizer, such as tokenizer.json; save it there too")
    with quiet(), _told(folder, "tokenizer"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    return tokenizer


def _class_of(config: "PreTrainedConfig") -> Any:
    """With the head that predicts tokens, where the model was saved as one that has it."""
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
    """A model of a class, and which of its weights the folder doesn't have."""
    model, found = kind.from_pretrained(
        folder, config=config, use_safetensors=True, output_loading_info=True, **_OFFLINE
    )
    return model, list(found["missing_keys"])


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings and progress bars of transformers in the with block."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _require_own_code(folder: Path, hf: dict[str, Any]) -> None:
    """Refuse models that transformers itself doesn't know."""
    from transformers import CONFIG_MAPPING, __version__

    kind = hf.get("model_type")
    if kind in CONFIG_MAPPING:
        return
    why = "needs code of its own, which isn't run" if "auto_map" in hf else "is unknown to it"
    raise UserError(
        f"{folder}: model_type {kind} {why}; choose a model that transformers {__version__} has"
    )


@contextmanager
def _told(folder: Path, what: str) -> Iterator[None]:
    """Failures of transformers, which are of many kinds, in one line."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{folder}: its {what} can't be read: {reason}") from None
