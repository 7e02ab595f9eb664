"""Signals of confidence from the attention weights of an answer; higher is more trustworthy.

They cost one forward pass per question, in which the weights are recomputed.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batch import pad_rows
from regard.device import ExecutionEnvironment
from regard.explorer.intercept import capture_attention
from regard.runs.run import Run
from regard.tasks.examples import subject_of
from regard.uncertainty.signals import closed_answer, open_prompts, score_tokens

ALPHA = 0.2
"""Weight of a token's own probability in RAUQ, as its authors choose it for pretrained models."""
BATCH = 32
"""Rows whose attention weights are held together."""


@torch.inference_mode()
def attention_signals(
    run: Run, questions: Sequence[str], answers: Sequence[str], environment: ExecutionEnvironment
) -> dict[str, list[float]]:
    """Return RAUQ and attention to the subject of each answer; nothing without attention.

    Raises:
        UserError: a question can't be encoded or is too long, or the model is no causal one.
    """
    prompts = open_prompts(run, questions)
    completions = [closed_answer(run, run.tokenizer.encode(answer)) for answer in answers]
    scored = score_tokens(run, prompts, completions, environment)
    limit, padding = run.recipe.model.context_length, run.tokenizer.special.padding
    found: dict[str, list[float]] = {"RAUQ": [], "attention to the subject": []}
    for start in range(0, len(prompts), BATCH):
        part = slice(start, start + BATCH)
        rows = [[*p, *c][:limit] for p, c in zip(prompts[part], completions[part], strict=True)]
        padded = pad_rows(rows, padding, limit=limit)
        records = capture_attention(run.model, padded.to(environment.device))
        if not records:
            return {}
        weights = torch.stack([record.weights.float().cpu() for record in records], 1)
        for i, (row, one) in enumerate(zip(rows, weights, strict=True), start):
            own, first = one[..., : len(row), : len(row)], len(prompts[i])
            tokens = subject_tokens(run, questions[i], subject_of(questions[i]))
            found["RAUQ"].append(rauq(own, first, scored[i].log_probabilities))
            found["attention to the subject"].append(subject_attention(own, first - 1, tokens))
    return found


def rauq(
    weights: Float[Tensor, "layers heads n n"], start: int, log_probabilities: Float[Tensor, " t"]
) -> float:
    """Return the least confidence of the layers in the tokens from `start` on.

    RAUQ of Vazhentsev et al., 2025 (arXiv:2505.20045), with the opposite sign. In each layer, a_i
    is the attention of token i to the one before, by the head that attends there most. Confidence
    is c_1 = P_1 and c_i = α P_i + (1 - α) a_i c_(i-1); a layer's is the mean of log c_i. The
    authors use the middle layers of large models; here all layers count.
    """
    probabilities = log_probabilities.double().exp()
    previous = weights.double().diagonal(-1, 2, 3)[:, :, start:]  # of tokens start + 1, …
    layers = torch.arange(len(weights))
    heads = previous.mean(-1).argmax(-1) if previous.shape[-1] else torch.zeros_like(layers)
    chosen = previous[layers, heads]
    confidence = probabilities[0].expand(len(weights))
    logs = [confidence.log()]
    for i in range(min(len(probabilities) - 1, chosen.shape[1])):
        confidence = ALPHA * probabilities[i + 1] + (1 - ALPHA) * chosen[:, i] * confidence
        logs.append(confidence.log())
    return float(torch.stack(logs).mean(0).min())


def subject_attention(
    weights: Float[Tensor, "layers heads n n"], query: int, tokens: range
) -> float:
    """Return the attention of one token to others: the largest of the heads, mean over layers."""
    return float(weights[:, :, query, list(tokens)].sum(-1).amax(1).mean())


def subject_tokens(run: Run, question: str, subject: str) -> range:
    """Return the places of a subject's tokens in the prompt; empty if it isn't in the question."""
    start = question.find(subject) if subject else -1
    if start < 0:
        return range(0)
    before, up_to = (
        len(run.tokenizer.encode(text))
        for text in (question[:start], question[: start + len(subject)])
    )
    prefix = len(run.template.prompt.prefix)
    return range(prefix + before, prefix + up_to)
