"""∂L/∂A of models of Hugging Face, whose attention is made explicit while a loss is computed."""

from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

from regard.errors import UserError
from regard.explorer.capture import Captured
from regard.explorer.gradients import Applied, Gradient, cross_entropy, gathered, movable, slopes
from regard.explorer.hugging_face_capture import noted

NEXT_TOKEN = frozenset(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
"""The classes that predict the next token; an old one or two may fill masks as well."""
MASKED_TOKEN = frozenset(modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values())
"""Those that fill masks."""


def hugging_face_gradients(
    model: PreTrainedModel, special: Bool[Tensor, " n"], **inputs: Tensor
) -> list[Gradient]:
    """∂L/∂A of each layer, in their order, for the model's loss on a text.

    Raises:
        UserError: the model gives texts no probability, the text is too short to have one, or the
            attention of such models can't be replaced by name.
        MismatchError: weights · values isn't what the kernel gave.
    """
    return slopes(lambda: text_loss(model, special, **inputs), _explicit(model))


def text_loss(
    model: PreTrainedModel, special: Bool[Tensor, " n"], **inputs: Tensor
) -> Float[Tensor, ""]:
    """The mean cross entropy of a text under a model, in nats a token.

    Of the next token; of an encoder–decoder, in what it writes; of a model that fills masks, of
    each token at its own place, but for the special ones, which it never learned to fill in.

    Raises:
        UserError: the model gives texts no probability, or the text is too short to have one.
    """
    kind, ids = type(model).__name__, inputs.get("decoder_input_ids", inputs["input_ids"])
    writes = model.config.is_encoder_decoder and model.get_output_embeddings() is not None
    if writes or kind in NEXT_TOKEN - MASKED_TOKEN:
        return cross_entropy(model(**inputs).logits[:, :-1], ids[:, 1:])
    if kind in MASKED_TOKEN - NEXT_TOKEN:
        return cross_entropy(model(**inputs).logits[:, ~special], ids[:, ~special])
    raise UserError(
        f"gradients need a model that predicts tokens; this is a {kind}, which has no head for it: "
        "choose one that was saved with its head"
    )


@contextmanager
def _explicit(model: PreTrainedModel) -> Iterator[Applied]:
    """In the with block, each output is made of a matrix of weights, which is noted here."""
    applied: Applied = []

    def note(one: Captured) -> Tensor:
        weights = movable(one.weights)
        applied.append((one.layer, weights))
        return gathered(weights, one.value, one.mask, one.bias)

    with noted(model, note):
        yield applied
