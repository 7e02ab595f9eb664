"""Models without weights, for what depends on names and shapes alone."""

from typing import Any

from torch.overrides import TorchFunctionMode

from regard.models.builders import Model, make_model
from regard.models.config import ModelConfig
from regard.models.head_config import HeadConfig


def make_uninitialized(config: ModelConfig, head: HeadConfig, vocabulary: int) -> Model:
    """Return a model whose weights aren't drawn, so that the system hasn't given them memory yet.

    On the meta device, torch would import its compiler, which takes a second.

    Raises:
        UserError: as `make_model`.
        UnsupportedError: as `make_model`.
    """
    with _Uninitialized():
        return make_model(config, head, vocabulary)


class _Uninitialized(TorchFunctionMode):
    """Skip the functions of torch.nn.init."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"]
        return func(*args, **(kwargs or {}))
