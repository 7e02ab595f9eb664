"""Configuration of recurrent networks and of the fixed-window model. Imports no torch."""

from typing import Annotated, Literal

from msgspec import Meta

from regard.attention.config import AttentionConfig
from regard.config import LONGEST, Config, Positive, Probability


class RecurrentLayersConfig(Config, frozen=True):
    """Base of recurrent networks."""

    context_length: Annotated[int, Meta(ge=8, le=LONGEST)] = 128
    """Longest sequence, in tokens."""
    cell: Literal["vanilla", "gru", "lstm"] = "gru"
    """Type of the recurrent cell."""
    activation: Literal["tanh", "identity"] = "tanh"
    """Activation of vanilla cells; identity makes a linear recurrence."""
    n_layers: Positive = 2
    """Number of layers."""
    d_model: Positive = 256
    """Width of the embeddings, and of a layer's states in each direction."""
    dropout: Probability = 0.1
    """Dropout of embeddings, between layers, and of attention weights if supported."""
    bidirectional: bool = False
    """Whether a second network reads from the end; not for next-token prediction."""

    @property
    def summary(self) -> str:
        """Description of the sizes."""
        ways = ", both ways" if self.bidirectional else ""
        return (
            f"{self.n_layers} layers of {self.cell} cells{ways}, width {self.d_model}, "
            f"context length {self.context_length}"
        )

    @property
    def least_weights(self) -> int:
        """Lower bound of the number of weights."""
        return 2 * self.n_layers * self.d_model**2

    def __post_init__(self) -> None:
        if self.activation != "tanh" and self.cell != "vanilla":
            raise ValueError(
                f"activation = {self.activation} is for vanilla cells, and cell = {self.cell}: "
                "set cell to vanilla, or leave activation out"
            )


class RecurrentConfig(RecurrentLayersConfig, frozen=True, tag_field="kind", tag="rnn"):
    """A recurrent network."""

    tie_head: bool = False
    """Whether the head uses the embedding matrix."""


class RecurrentEncoderDecoderConfig(
    RecurrentLayersConfig, frozen=True, tag_field="kind", tag="rnn-encoder-decoder"
):
    """A recurrent encoder, and a recurrent decoder that continues from its last states.

    `bidirectional` applies to the encoder; the decoder is causal.
    """

    attention: AttentionConfig | None = None
    """Attention to the encoder's states. Default: none, only the last state is passed on."""


class FixedWindowConfig(Config, frozen=True, tag_field="kind", tag="fixed-window"):
    """A feed-forward language model with a window of the last tokens (Bengio et al., 2003)."""

    context_length: Annotated[int, Meta(ge=8, le=LONGEST)] = 128
    """Longest sequence, in tokens."""
    size: Positive = 8
    """Number of tokens in the window."""
    d_model: Positive = 256
    """Width of the embeddings and of the output."""
    d_hidden: Positive = 512
    """Width of the hidden layer."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of the hidden layer."""
    tie_head: bool = False
    """Whether the head uses the embedding matrix."""

    @property
    def summary(self) -> str:
        """Description of the sizes."""
        return f"{self.size} tokens, width {self.d_model}, context length {self.context_length}"

    @property
    def least_weights(self) -> int:
        """Lower bound of the number of weights."""
        return (self.size + 1) * self.d_model * self.d_hidden
