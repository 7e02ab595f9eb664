"""One loop that generates: batched, cached, for any model that keeps a state."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data.batch import lengths_of, pad_rows
from regard.decoding.sampling import Sampling


class Generator(Protocol):
    """A model that scores the next token from a state, which has a method `reorder(rows)`."""

    def init_state(self, batch: int, capacity: int) -> Any: ...

    def extend(
        self,
        input_ids: Int[Tensor, "b n"],
        states: Any,
        attention_mask: Bool[Tensor, "b n"] | None = None,
    ) -> tuple[Float[Tensor, "b vocabulary"], Any]: ...


@dataclass(frozen=True)
class Generated:
    """The new tokens of one row."""

    ids: list[int]
    """Without the token that ended it."""
    log_probabilities: list[float]
    """Of each new token under the model, that of the token that ended it last."""
    stopped: bool
    """Whether one of the stop ids was reached."""


@torch.inference_mode()
def generate(
    model: Generator,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_ids: Sequence[int] = (),
    sampling: Sampling = Sampling(),  # noqa: B008 (frozen)
    device: torch.device | None = None,
) -> list[Generated]:
    """Continue all prompts together; they may differ in length, and none may be empty."""
    steps = stream(
        model,
        prompts,
        max_new_tokens=max_new_tokens,
        stop_ids=stop_ids,
        sampling=sampling,
        device=device,
    )
    tokens, scores = zip(*steps, strict=True)
    return [
        _until_stop(row_ids, row_scores, stop_ids)
        for row_ids, row_scores in zip(
            torch.stack(tokens, 1).tolist(), torch.stack(scores, 1).tolist(), strict=True
        )
    ]


@torch.inference_mode()
def stream(
    model: Generator,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_ids: Sequence[int] = (),
    sampling: Sampling = Sampling(),  # noqa: B008 (frozen)
    device: torch.device | None = None,
) -> Iterator[tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]]:
    """Each row's next token and its log-probability, until all rows have reached a stop id.

    A finished row is still extended until then.
    """
    logits, states = prefill(model, prompts, max_new_tokens, device)
    uniforms = sampling.uniforms(len(prompts), max_new_tokens).to(logits.device)
    done = torch.zeros(len(prompts), dtype=torch.bool, device=logits.device)
    stops = torch.tensor(stop_ids, dtype=torch.long, device=logits.device)
    for step in range(max_new_tokens):
        token = sampling.choose(logits, uniforms[:, step])
        yield token, logits.float().log_softmax(-1).gather(-1, token[:, None]).squeeze(-1)
        done |= torch.isin(token, stops)
        if step + 1 == max_new_tokens or (stop_ids and bool(done.all())):
            return
        logits, states = model.extend(token[:, None], states)


def prefill(
    model: Generator,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    device: torch.device | None = None,
) -> tuple[Float[Tensor, "rows vocabulary"], Any]:
    """Logits of each prompt's next token, and states with capacity for the new tokens.

    The last new token needs no place: nothing comes after it.
    """
    capacity = max(map(len, prompts)) + max_new_tokens - 1
    ids = pad_rows(prompts, 0, limit=capacity)  # masked
    attention_mask = torch.arange(ids.shape[1]) < lengths_of(prompts)[:, None]
    states = model.init_state(len(prompts), capacity)
    return model.extend(ids.to(device), states, attention_mask.to(device))


def _until_stop(ids: list[int], scores: list[float], stop_ids: Sequence[int]) -> Generated:
    end = next((place for place, i in enumerate(ids) if i in stop_ids), None)
    if end is None:
        return Generated(ids, scores, stopped=False)
    return Generated(ids[:end], scores[: end + 1], stopped=True)
