"""Loss of a text under a Hugging Face model, for gradients."""

from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

from regard.errors import UserError
from regard.explorer.gradients import cross_entropy

NEXT_TOKEN = frozenset(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
"""Classes that predict the next token; a few old ones are masked language models too."""
MASKED_TOKEN = frozenset(modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values())
"""Classes that fill masks."""


def text_loss(
    model: PreTrainedModel, special: Bool[Tensor, " n"], **inputs: Tensor
) -> Float[Tensor, ""]:
    """Return the mean cross entropy of a text under a model, in nats per token.

    A decoder predicts each next token, an encoder–decoder those of its target. A masked language
    model predicts each token at its own position, except special tokens, which aren't training
    targets.

    Raises:
        UserError: the model doesn't predict tokens, or the text is too short.
    """
    kind, ids = type(model).__name__, inputs.get("decoder_input_ids", inputs["input_ids"])
    has_target = model.config.is_encoder_decoder and model.get_output_embeddings() is not None
    if has_target or kind in NEXT_TOKEN - MASKED_TOKEN:
        return cross_entropy(model(**inputs).logits[:, :-1], ids[:, 1:])
    if kind in MASKED_TOKEN - NEXT_TOKEN:
        return cross_entropy(model(**inputs).logits[:, ~special], ids[:, ~special])
    raise UserError(
        f"gradients need a model that predicts tokens; this is a {kind}, which has no head for it: "
        "choose one that was saved with its head"
    )
