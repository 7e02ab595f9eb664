"""The tensors of a model that are saved, by name."""

from typing import cast

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized


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
