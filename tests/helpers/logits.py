"""The logits that a call makes, of a model with a large vocabulary."""

from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from regard.runs.run import Run

VOCABULARY = 2**15


class LargestLogits(TorchDispatchMode):
    """Records the bytes of the largest tensor with a number for each token of the vocabulary."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and VOCABULARY in found.shape[-2:]:
            self.bytes = max(self.bytes, found.numel() * found.element_size())
        return found


def with_large_vocabulary(run: Run) -> Run:
    """Load a run again, with a head that scores more tokens than its tokenizer has."""
    loaded = Run.load(run.path)
    model = loaded.language_model
    model.head = nn.Linear(model.body.width, VOCABULARY, bias=False)
    return loaded
