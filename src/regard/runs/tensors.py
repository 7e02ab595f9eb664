"""Tensors of models as safetensors files."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from regard.errors import UserError


def saved_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and saved buffers of a model."""
    kept = model.state_dict(keep_vars=True)
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    return dict(model.named_parameters()) | buffers


def merged_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and saved buffers of a model, parametrized ones by their values."""
    kept = {name: t for name, t in saved_tensors(model).items() if ".parametrizations." not in name}
    return kept | {
        f"{path}.{name}": getattr(module, name)
        for path, module in model.named_modules()
        if is_parametrized(module)
        for name in cast("nn.ModuleDict", module.parametrizations)
    }


def pack_tensors(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """A safetensors file."""
    contiguous = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    return save_safetensors(contiguous, metadata)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        return load_safetensors(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except SafetensorError as error:
        raise UserError(f"{path}: is damaged ({error}); restore it from a copy") from None
