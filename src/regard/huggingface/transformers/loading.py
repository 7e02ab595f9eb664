"""Base class of transformers models for runs; loads a run with Regard's code."""

from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from regard.errors import UserError
from regard.models.builders import SequenceToSequence
from regard.runs.recipe import require_run
from regard.runs.run import Run
from regard.runs.transformers_files import (
    MODEL_TYPE,
    auto_class,
    generation_config,
    transformers_config,
)


class RegardConfig(PreTrainedConfig):
    """Fields of a run that transformers needs; the run's configuration is its config.toml.

    >>> config = RegardConfig.from_pretrained("tiny")
    >>> config.hidden_size, config.num_hidden_layers
    (16, 2)
    """

    model_type = MODEL_TYPE


class RunModel(PreTrainedModel):
    """Base of transformers classes that wrap the model of a run."""

    config_class = RegardConfig
    base_model_prefix = "model"
    auto_class: ClassVar[str]
    """Name of the Auto class of transformers that loads it."""

    def __init__(self, config: RegardConfig, run: Run) -> None:
        """Wrap the model of a run; `from_pretrained` loads one."""
        super().__init__(config)
        self.model = run.model
        self.context_length = run.recipe.model.context_length

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path, **options: Any
    ) -> Self:
        """Load the run of a folder, in evaluation mode.

        Of the options of transformers, `config`, `dtype`, `device_map` with one device, and
        `trust_remote_code` (for custom mechanisms) are supported.

        Raises:
            UserError: it isn't a run, is damaged or of another kind, or an option is unsupported.
        """
        path = Path(pretrained_model_name_or_path)
        config, dtype = options.pop("config", None), _dtype(options)
        device = _device(options.pop("device_map", None))
        trust = bool(options.pop("trust_remote_code", False))
        for name, value in options.items():
            if name not in _HARMLESS and value is not None:
                raise UserError(f"from_pretrained: {name}={value} isn't supported for a run")
        run = Run.load(require_run(path), device=device, trust_code=trust)
        if auto_class(run.recipe) != cls.auto_class:
            raise UserError(f"{path}: is not a model for {cls.__name__}; {_fitting(run)}")
        derived = transformers_config(run.recipe, run.tokenizer)
        config = RegardConfig(**derived) if config is None else config
        _require_derived(run, config, derived)
        config.name_or_path = str(path)
        model = cls(config, run)
        if model.can_generate():
            settings = generation_config(run.recipe, run.tokenizer)
            model.generation_config = GenerationConfig(**settings)
        if dtype not in (None, model.dtype):  # unchanged, float64 tables stay float64
            nn.Module.to(model, dtype)
        loaded: Self = model.train(False)
        return loaded

    def save_pretrained(self, *_: Any, **__: Any) -> None:
        """Raise an error: runs are saved by training.

        Raises:
            UserError: always; the message names the command that exports to transformers.
        """
        raise UserError(
            "save_pretrained: isn't supported for a run; copy its folder, or write a Hugging Face "
            "model: regard export-hf RUN --out DIR"
        )

    def get_input_embeddings(self) -> nn.Module:
        """Return the embeddings of tokens."""
        body: Any = self.model.body
        stack = body.decoder if isinstance(self.model, SequenceToSequence) else body
        found: nn.Module = stack.embedding
        return found

    def _init_weights(self, module: nn.Module) -> None:
        """Keep all loaded weights."""


_HARMLESS = frozenset(
    {
        "_from_auto",
        "_from_pipeline",
        "_commit_hash",
        "adapter_kwargs",
        "attn_implementation",
        "cache_dir",
        "code_revision",
        "force_download",
        "local_files_only",
        "low_cpu_mem_usage",
        "proxies",
        "revision",
        "subfolder",
        "token",
        "use_safetensors",
        "weights_only",
    }
)
"""Ignored options, for downloads or for files of transformers."""


def _dtype(options: dict[str, Any]) -> torch.dtype | None:
    """Return the requested dtype of the weights, None for automatic."""
    old, chosen = options.pop("torch_dtype", None), options.pop("dtype", None)
    name = chosen or old or "auto"
    if isinstance(name, torch.dtype):
        return name
    if name == "auto":
        return None
    found = getattr(torch, str(name), None)
    if not isinstance(found, torch.dtype):
        raise UserError(f"from_pretrained: dtype={name} is not a torch dtype; try float32")
    return found


def _device(device_map: Any) -> torch.device:
    """Return the single device of a map; default: the CPU."""
    devices = device_map.values() if isinstance(device_map, dict) else [device_map]
    chosen = {"cpu" if device is None else device for device in devices}
    try:
        (device,) = chosen
        return torch.device(device)
    except (ValueError, RuntimeError, TypeError):
        raise UserError(
            f"from_pretrained: device_map={device_map} isn't supported for a run; name one device, "
            'such as "cuda"'
        ) from None


def _require_derived(run: Run, config: Any, derived: dict[str, Any]) -> None:
    """Check that config.json, or arguments in its place, agree with config.toml."""
    if getattr(config, "model_type", None) != MODEL_TYPE:
        raise UserError(f"{run.path}: config={type(config).__name__} is for another model")
    expected = RegardConfig(**derived)
    for name in derived:
        found, own = getattr(config, name, None), getattr(expected, name)
        if found != own:
            raise UserError(
                f"{run.path / 'config.json'}: it or an argument sets {name} = {found}, but "
                f"config.toml sets {own}; config.json is derived: put it back, leave the "
                "argument out"
            )


def _fitting(run: Run) -> str:
    """Return a hint at the class that loads a run."""
    if (auto := auto_class(run.recipe)) is not None:
        return f"load it by {auto}"
    head = run.recipe.head.__struct_config__.tag
    return f"transformers has no class for head.kind={head}; load it by regard.load"
