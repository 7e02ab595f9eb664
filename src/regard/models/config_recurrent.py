"""What models that aren't Transformers are made of, as data. Knows no torch."""

from typing import Annotated, Literal

from msgspec import Meta

from regard.models.config_attention import AttentionConfig
from regard.models.config_base import Config, Positive, Probability


class RecurrentLayersConfig(Config, frozen=True):
    """What all recurrent networks have."""

    block: Annotated[int, Meta(ge=8)] = 128
    """Longest sequence, in tokens."""
    cell: Literal["vanilla", "gru", "lstm"] = "gru"
    """How a state follows from the one before: without gates, or by one of the gated cells."""
    activation: Literal["tanh", "identity"] = "tanh"
    """Activation of vanilla cells; with the identity, states are linear in those before."""
    n_layers: Positive = 2
    """Number of layers."""
    d_model: Positive = 256
    """Width of the embeddings, and of the states of a layer in one direction."""
    dropout: Probability = 0.1
    """Dropout of embeddings, between layers, and of a softmax's attention weights."""
    bidirectional: bool = False
    """Whether the tokens are read from the end too; not for what predicts the next one."""

    @property
    def summary(self) -> str:
        """Its sizes, in words."""
        ways = ", both ways" if self.bidirectional else ""
        return (
            f"{self.n_layers} layers of {self.cell} cells{ways}, width {self.d_model}, "
            f"block {self.block}"
        )

    def __post_init__(self) -> None:
        if self.activation != "tanh" and self.cell != "vanilla":
            raise ValueError(
                f"activation = {self.activation} is for vanilla cells, and cell = {self.cell}: "
                "set cell to vanilla, or leave activation out"
            )


class RecurrentConfig(RecurrentLayersConfig, frozen=True, tag_field="kind", tag="rnn"):
    """A recurrent network that reads one sequence."""

    tie_head: bool = False
    """Whether the head uses the embedding matrix."""


class RecurrentEncoderDecoderConfig(
    RecurrentLayersConfig, frozen=True, tag_field="kind", tag="rnn-encoder-decoder"
):
    """A recurrent network that reads one sequence, and another that continues from its states.

    `bidirectional` is of the encoder; a decoder never looks ahead.
    """

    attention: AttentionConfig | None = None
    """How the decoder looks at the encoder's states; not given, it begins with the last alone."""


class WindowConfig(Config, frozen=True, tag_field="kind", tag="window"):
    """A language model that sees a fixed number of tokens (Bengio et al., 2003)."""

    block: Annotated[int, Meta(ge=8)] = 128
    """Longest sequence, in tokens."""
    size: Positive = 8
    """Tokens that it sees, the newest among them."""
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
        """Its sizes, in words."""
        return f"{self.size} tokens, width {self.d_model}, block {self.block}"
