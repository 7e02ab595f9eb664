"""Import of a Hugging Face folder, without unpickling and downloads."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

import regard
from regard.errors import UserError
from regard.files import expanded, held_alone, new_folder, read_table, read_tensors, require_new
from regard.huggingface.convert.families import FAMILIES
from regard.huggingface.convert.tokenizer import read_tokenizer, template_of
from regard.runs.recipe import DataConfig, Recipe, require_run
from regard.runs.run import Run, require_finite
from regard.text.config import HuggingFaceConfig
from regard.text.tokenizer import Tokenizer


def import_folder(folder: Path, out: Path) -> Run:
    """Save the model and tokenizer of a folder as a run, and return it in evaluation mode.

    Raises:
        UserError: as `read_folder`; or `out` exists.
        NonFiniteError: a weight is NaN or infinite.
    """
    require_new(out)
    run = read_folder(folder, out)
    require_finite(run.model, folder)
    with held_alone(out), new_folder(out) as unfinished:
        run.save_new(unfinished)
    return run


def load_start(place: str | Path, *, trust_code: bool = False) -> Run:
    """Return the run in a folder, or the Hugging Face model in a folder after "hf:".

    Raises:
        UserError: it can't be loaded.
    """
    name = str(place)
    if name.startswith("hf:"):
        return read_folder(expanded(name.removeprefix("hf:")), Path(name))
    require_run(Path(place), or_hugging_face=True)
    return Run.load(Path(place), trust_code=trust_code)


def load_tokenizer(place: str) -> Tokenizer:
    """Return the tokenizer of a run's folder, or of a Hugging Face folder after "hf:".

    Raises:
        UserError: it can't be loaded.
    """
    if not place.startswith("hf:"):
        return Tokenizer.load(Path(place))
    folder = expanded(place.removeprefix("hf:"))
    return read_tokenizer(folder, read_config(folder), read_generation_config(folder))


def read_folder(folder: Path, path: Path) -> Run:
    """Return the model and tokenizer of a folder as an unsaved run in evaluation mode.

    Options without a counterpart in a run are listed in the origin, under "dropped". An encoder
    without a head gets an embedding head, which pools its hidden states.

    Raises:
        UserError: a file is missing, the model is of an unsupported type, or the files don't fit
            together.
    """
    hf = read_config(folder)
    family = FAMILIES.get(str(hf.get("model_type")))
    if family is None:
        *others, last = FAMILIES
        raise UserError(
            f"{folder / 'config.json'}: model_type is {hf.get('model_type')}; what can be imported "
            f"is {', '.join(others)} and {last}"
        )
    generation = read_generation_config(folder)
    tokenizer = read_tokenizer(folder, hf, generation)
    files = weight_files(folder)
    tensors = {name: tensor for file in files for name, tensor in read_tensors(file).items()}
    try:
        config = family.read_config(family.amend(hf, tensors))
        weights, unused = family.load_weights(tensors, config)
        template = template_of(tokenizer, hf, generation)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None
    rows = family.vocabulary(weights)
    if rows < tokenizer.size:
        raise UserError(
            f"{folder}: its tokenizer has {tokenizer.size} tokens, but its model has embeddings of "
            f"{rows}; save a model and a tokenizer that belong together"
        )
    recipe = Recipe(
        # Windows of files have no start token, so a tokenizer that adds one needs documents.
        data=DataConfig(documents="files" if template.document == "{document}" else "lines"),
        tokenizer=HuggingFaceConfig(vocab_size=None if rows == tokenizer.size else rows),
        template=template,
        model=config,
        head=family.head_of(tensors),
        finetuning="hugging-face-finetune",
    )
    origin = _origin(folder, files) | {
        "model_type": family.model_type,
        "dtype": _dtype(weights),
        "dropped": [*unused, *_dropped_options(hf, generation), *_dropped_template(folder)],
    }
    run = Run.new(path, recipe, tokenizer, origin)
    # Not strict, because tied tensors are stored only once; all others are present.
    run.model.load_state_dict(weights, strict=False)
    run.model.eval()
    return run


_GENERATION = (
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beams",
    "repetition_penalty",
    "temperature",
    "top_k",
    "top_p",
)
"""Generation options in config.json of older files."""

_KEPT = re.compile(
    r"_from_model_config|transformers_version|use_cache|output_.*|decoder_start_token_id|"
    r"forced_bos_token_id|(pad|bos|eos|sep|cls|mask|unk)_token_id"
)
"""Fields of generation_config.json that a run keeps, or that concern only transformers."""


def _dropped_options(hf: Mapping[str, Any], generation: Mapping[str, Any]) -> list[str]:
    """Return the generation options of a model; in Regard, they are arguments of `generate`."""
    old = {name: hf[name] for name in _GENERATION if name in hf}
    found = old | {name: x for name, x in generation.items() if not _KEPT.fullmatch(name)}
    return [f"{name} = {value}" for name, value in found.items() if value is not None]


def _dropped_template(folder: Path) -> list[str]:
    """Return ["chat_template"] if the folder has a chat template, else an empty list."""
    path = folder / "tokenizer_config.json"
    settings = read_table(path) if path.is_file() else {}
    found = "chat_template" in settings or (folder / "chat_template.jinja").is_file()
    return ["chat_template"] if found else []


def _dtype(tensors: Mapping[str, Tensor]) -> str:
    """Return the dtype of all tensors, or float32 if they differ."""
    found = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()}
    return found.pop() if len(found) == 1 else "float32"


def read_generation_config(folder: Path) -> dict[str, Any]:
    """Read the generation_config.json of a folder; empty if there is none."""
    path = folder / "generation_config.json"
    return read_table(path) if path.is_file() else {}


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config.json of a folder.

    Raises:
        UserError: there is none, it is damaged, or the folder holds a run.
    """
    path = folder / "config.json"
    if (folder / "config.toml").is_file():
        raise UserError(
            f"{folder}: is a Regard run already; use it without hf: or import-hf, as in "
            f"regard generate {folder} TEXT"
        )
    if not path.is_file():
        reason = "it has no config.json" if folder.exists() else "it doesn't exist"
        raise UserError(f"{folder}: is no folder of a Hugging Face model: {reason}")
    return read_table(path)


def weight_files(folder: Path) -> list[Path]:
    """Return the file of the weights, or the shards listed in an index.

    Raises:
        UserError: there is none, or the weights are pickled.
    """
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    if index.is_file():
        shards = read_table(index).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise UserError(f"{index}: has no weight_map; restore it from a copy")
        return sorted({folder / Path(str(name)).name for name in shards.values()})
    if (folder / "pytorch_model.bin").is_file():
        raise UserError(
            f"{folder / 'pytorch_model.bin'}: is a pickle, which could run any code, and isn't "
            "read; convert it: load the model with transformers and save_pretrained it elsewhere"
        )
    raise UserError(f"{folder}: has no model.safetensors; save the model's weights as safetensors")


def _origin(folder: Path, files: Iterable[Path]) -> dict[str, Any]:
    """Return the run's origin; a single file's fingerprint is the start of its sha256sum."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return {
        "regard": regard.__version__,
        "stage": "import",
        "folder": str(folder),
        "fingerprint": digest.hexdigest()[:16],
    }
