"""What a model does, before attention, to tell where tokens stand."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from regard.positions import rotate


@dataclass(frozen=True, eq=False)
class Encoding:
    """Vectors and turns. Biases are part of what a layer is seen to do."""

    vectors: Float[Tensor, "n d"] | None = None
    """Added to the embeddings, or put beside them."""
    turn: tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]] | None = None
    """Cosines and signed sines that turn queries and keys (`regard.positions.rotate`)."""

    def before(self, x: Float[Tensor, "heads n d"]) -> Float[Tensor, "heads n d"] | None:
        """Queries or keys as they were before they were turned, if they were."""
        if self.turn is None:
            return None
        cos, signed_sin = (part[None, None] for part in self.turn)
        return rotate(x[None], (cos, -signed_sin))[0]
