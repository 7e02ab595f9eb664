"""Places of a model: tensors that a hook may read or replace while the model runs.

A place is named by its stack ("decoder" or "encoder"), its layer and its part: "decoder.2.heads".
A hook receives the tensor of all heads or channels and its tokens, and returns the tensor with
which the model continues. Only places with a hook are intercepted.

Shapes: b rows, n tokens, d = d_model, h heads, q queries, k keys.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from regard.attention import Attention, Mask
from regard.attention.kernel import KernelAttention
from regard.attention.softmax import ScoreAttention
from regard.attention.state import last_real
from regard.edits.positions import intercept_rotation, intercept_vectors, rotary_of
from regard.edits.recurrent import intercept_recurrence
from regard.edits.tokens import Hook, Hooks, Reader, Tokens
from regard.errors import UserError
from regard.explorer.calls import AttentionCall, intercept_calls, replaced
from regard.explorer.states import StateHandler
from regard.models.attention_layers import CrossAttention, SelfAttention
from regard.models.builders import Model
from regard.models.fixed_window import FixedWindowDecoder
from regard.models.layers import Layer
from regard.models.perceiver import DownLayer, LatentLayer, PerceiverDecoder, UpLayer
from regard.models.recurrent import RecurrentDecoder, RecurrentEncoder
from regard.models.seq2seq import EncoderDecoder, GlobalAttention, RecurrentEncoderDecoder
from regard.models.transformer import Decoder, Encoder, Transformer

Stack: TypeAlias = (
    Decoder | Encoder | PerceiverDecoder | RecurrentDecoder | RecurrentEncoder | FixedWindowDecoder
)

AttentionModule: TypeAlias = SelfAttention | CrossAttention | GlobalAttention

WRITES = ("beta", "erase", "write")
"""Gates by which a token changes the state of a recurrence."""
FIRST, LATENTS = "first", "latents"
"""Additional readers of a perceiver: of the first tokens, which latents attend to, and of the
latents, where latent i is made with token i."""


class Parts(NamedTuple):
    """An attention layer: the mechanism, and the module that has its gating."""

    place: str
    module: AttentionModule
    mechanism: Attention
    queries: str
    """The reader of the queries: the name of a stack, or `LATENTS`."""
    keys: str
    """The reader of the keys: the name of a stack, `FIRST` or `LATENTS`."""
    reads_all: bool = True
    """Whether a call in decoding has all queries so far, not just the new ones."""


def stacks(model: Model) -> dict[str, Stack]:
    """Return the stacks of a model by name: "encoder", "decoder" or both."""
    body = model.body
    if isinstance(body, EncoderDecoder | RecurrentEncoderDecoder):
        return {"encoder": body.encoder, "decoder": body.decoder}
    is_encoder = isinstance(body, Encoder | RecurrentEncoder)
    return {"encoder" if is_encoder else "decoder": body}


def attention_layers(model: Model) -> Iterator[Parts]:
    """Yield the attention layers of a model, first to last."""
    for name, stack in stacks(model).items():
        for place, layer, reader in stack_layers(name, stack):
            if isinstance(layer, Layer):
                own = layer.self_attention
                yield Parts(place, own, own.attention, reader, reader)
            if (cross := cross_attention(layer)) is not None:
                down = isinstance(layer, DownLayer)
                keys = FIRST if down else LATENTS if isinstance(layer, UpLayer) else "encoder"
                yield Parts(f"{place}.cross", cross, cross.attention, reader, keys, down)
    if isinstance(model.body, RecurrentEncoderDecoder) and model.body.attention is not None:
        attention = model.body.attention
        yield Parts("decoder.cross", attention, attention.mechanism, "decoder", "encoder", False)


def stack_layers(name: str, stack: Stack) -> Iterator[tuple[str, Layer | LatentLayer, str]]:
    """Yield the layers of a Transformer with their places, and the readers of their rows."""
    if isinstance(stack, PerceiverDecoder):
        layers: list[Layer | LatentLayer] = [stack.down, *stack._layers(), stack.up]
        for i, layer in enumerate(layers):
            yield f"{name}.{i}", layer, name if layer is stack.up else LATENTS
    elif isinstance(stack, Transformer):
        for i, layer in enumerate(stack._layers()):
            yield f"{name}.{i}", layer, name


def cross_attention(layer: Layer | LatentLayer) -> CrossAttention | None:
    """Return the attention of a layer to another sequence, if it has one."""
    found: CrossAttention | None = getattr(layer, "cross_attention", None)
    return found


def in_turn(each: Iterable[Hooks]) -> dict[str, Hook]:
    """Merge mappings of hooks; several hooks of one place apply in order."""
    found: dict[str, Hook] = {}
    for hooks in each:
        for place, hook in hooks.items():
            before = found.get(place)
            found[place] = hook if before is None else _then(before, hook)
    return found


def _then(first: Hook, second: Hook) -> Hook:
    return lambda x, tokens, keys: second(first(x, tokens, keys), tokens, keys)


@contextmanager
def intercept_places(
    model: Model, hooks: Hooks, prompt_tokens: int | None = None
) -> Iterator[None]:
    """Call the hooks of places in the with block.

    The prompt of a decoder is its first input, or only the first `prompt_tokens` of it.

    Raises:
        UserError: rows hold several documents.
    """
    readers = _readers(model, prompt_tokens)
    with ExitStack() as changed:
        for name, stack in stacks(model).items():
            changed.enter_context(_read_by(stack, readers[name]))
            changed.enter_context(_intercept_stack(name, stack, readers, hooks))
        if isinstance(model.body, RecurrentDecoder | FixedWindowDecoder | RecurrentEncoderDecoder):
            changed.enter_context(_read_lengths(model.body, readers["decoder"]))
        for parts in attention_layers(model):
            if any(_is_part(place, parts.place) for place in hooks):
                changed.enter_context(_intercept_attention(parts, readers, hooks))
        yield


def _readers(model: Model, prompt_tokens: int | None) -> dict[str, Reader]:
    """Return the readers of the stacks, and of the first tokens and latents of a perceiver."""
    body = model.body
    if not isinstance(body, PerceiverDecoder):
        return {n: Reader(prompt_tokens if n == "decoder" else None) for n in stacks(model)}
    first = Reader(prompt_tokens, limit=body.n_latents)
    latents = Reader(prompt_tokens, limit=body.n_latents, unit="latent")
    decoder = Reader(prompt_tokens, followers=(first, latents))
    return {"decoder": decoder, FIRST: first, LATENTS: latents}


ATTENTION_PARTS = (
    "queries",
    "keys",
    "values",
    "scores",
    "weights",
    "states",
    "raw",
    "heads",
    "allowed",
    "unwritten",
)
"""Parts of an attention layer. The last two are for cuts: the pairs that remain allowed, and the
keys whose writes to a state are cut."""


def _is_part(place: str, layer: str) -> bool:
    owner, _, part = place.rpartition(".")
    return owner == layer and part in ATTENTION_PARTS


# Stacks


def _read_by(stack: Stack, reader: Reader) -> AbstractContextManager[None]:
    """Pass the tokens of each call of a stack to a reader."""
    whole = stack.encode if isinstance(stack, RecurrentEncoder) else stack.forward
    grow = None if isinstance(stack, Encoder | RecurrentEncoder) else stack.extend

    def forward(input_ids: Tensor, lengths: Tensor | None = None, *rest: Any, **given: Any) -> Any:
        if given.get("document_ids") is not None:
            raise UserError("an edit doesn't apply to rows of several documents")
        reader.begin(input_ids, lengths)
        return whole(input_ids, lengths, *rest, **given)

    def extend(
        input_ids: Tensor, states: Any, attention_mask: Tensor | None = None, *, last: bool = False
    ) -> Any:
        assert grow is not None
        reader.extend(input_ids, states.length, attention_mask)
        x, states = grow(input_ids, states, attention_mask)  # of all tokens, which hooks may read
        return last_real(x, attention_mask) if last else x, states

    methods: dict[str, Callable[..., Any]] = {}
    if isinstance(stack, RecurrentEncoder):
        methods["encode"] = forward
    elif isinstance(stack, Transformer):
        methods["forward"] = forward
    if grow is not None:
        methods["extend"] = extend
    return replaced(stack, **methods)


def _read_lengths(body: nn.Module, reader: Reader) -> AbstractContextManager[None]:
    """Pass the lengths of whole rows to the reader of a decoder whose `forward` ignores them."""
    whole = body.forward
    parameters = signature(whole)
    name = "target_lengths" if isinstance(body, RecurrentEncoderDecoder) else "lengths"

    @wraps(whole)  # keeps the signature, for a block in this one
    def forward(*inputs: Tensor, **given: Tensor) -> Tensor:
        with reader.reading(parameters.bind(*inputs, **given).arguments.get(name)):
            hidden: Tensor = whole(*inputs, **given)
        return hidden

    return replaced(body, forward=forward)


@contextmanager
def _intercept_stack(
    name: str, stack: Stack, readers: Mapping[str, Reader], hooks: Hooks
) -> Iterator[None]:
    reader = readers[name]
    with ExitStack() as changed:
        if isinstance(stack, Transformer):
            if (hook := hooks.get(f"{name}.positions")) is not None:
                changed.enter_context(intercept_vectors(stack, reader, hook))
            if (hook := hooks.get(f"{name}.embedding")) is not None:
                changed.enter_context(_intercept_embedding(stack, reader, hook))
            for i, (place, layer, of_rows) in enumerate(stack_layers(name, stack)):
                rotary = rotary_of(stack, i)
                if rotary is not None and (hook := hooks.get(f"{place}.positions")) is not None:
                    assert isinstance(layer, Layer)
                    changed.enter_context(intercept_rotation(layer, rotary, reader, hook))
                own = {p: h for p, h in hooks.items() if p.startswith(f"{place}.")}
                if any(not _is_attention(one) for one in own):
                    changed.enter_context(_intercept_layer(place, layer, readers[of_rows], own))
        elif (hook := hooks.get(f"{name}.embedding")) is not None:
            changed.enter_context(_hooked(stack.embedding, reader, hook))
        if isinstance(stack, RecurrentDecoder | RecurrentEncoder):
            changed.enter_context(intercept_recurrence(name, stack.recurrence, reader, hooks))
        if isinstance(stack, FixedWindowDecoder) and f"{name}.hidden" in hooks:
            changed.enter_context(_hooked(stack.dropout_hidden, reader, hooks[f"{name}.hidden"]))
        yield


def _is_attention(place: str) -> bool:
    return place.rpartition(".")[2] in ATTENTION_PARTS


def _hooked(module: nn.Module, reader: Reader, hook: Hook) -> AbstractContextManager[None]:
    """Call a hook with the output of a module: for recomputed earlier tokens, and for new ones."""
    compute = module.forward

    def forward(x: Tensor) -> Tensor:
        out: Tensor = compute(x)
        tokens = reader.now
        again = out.shape[1] - tokens.n
        before, new = out.split_with_sizes([again, tokens.n], 1)
        places = tokens.positions[:, :1] + torch.arange(-again, 0, device=out.device)
        if bool((places >= 0).any()):
            known = Tokens(tokens.prompt, places.clamp(min=0))
            before = torch.where((places >= 0)[..., None], hook(before, known, known), before)
        return torch.cat([before, hook(new, tokens, tokens)], 1)

    return replaced(module, forward=forward)


def _intercept_embedding(
    stack: Transformer, reader: Reader, hook: Hook
) -> AbstractContextManager[None]:
    embed = stack._embed

    def embedded(*args: Any) -> Any:
        x, ropes = embed(*args)
        return hook(x, reader.now, reader.now), ropes

    return replaced(stack, _embed=embedded)


def _intercept_layer(
    name: str, layer: Layer | LatentLayer, reader: Reader, hooks: Hooks
) -> AbstractContextManager[None]:
    """Intercept the residual stream of a layer and the output of each of its parts."""
    add = layer._add
    first = "cross" if isinstance(layer, LatentLayer) else "attention"
    parts = {first: layer.norm_attention, "feedforward": layer.norm_feed_forward}
    if isinstance(layer, Layer) and cross_attention(layer) is not None:
        parts["cross"] = layer.norm_cross

    def hooked(part: str, x: Tensor) -> Tensor:
        hook = hooks.get(f"{name}.{part}")
        return x if hook is None else hook(x, reader.now, reader.now)

    def from_stream(compute: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, *args, **given: compute(hooked("residual", x), *args, **given)

    def summed(norm: nn.Module, x: Tensor, dropout: Any, branch: Tensor) -> Tensor:
        part = next(part for part, its_norm in parts.items() if its_norm is norm)
        return hooked(f"residual.{part}", add(norm, x, dropout, hooked(part, branch)))

    methods = {method: from_stream(getattr(layer, method)) for method in _stream_methods(layer)}
    return replaced(layer, **methods, _add=summed)


def _stream_methods(layer: Layer | LatentLayer) -> tuple[str, ...]:
    """Return the methods of a layer whose first argument is its residual stream."""
    match layer:
        case DownLayer():
            return "attend", "attend_new"
        case UpLayer():
            return ("attend",)
    return "forward", "extend"


# Attention


@contextmanager
def _intercept_attention(
    parts: Parts, readers: Mapping[str, Reader], hooks: Hooks
) -> Iterator[None]:
    reader, gating = readers[parts.queries], parts.module.gating
    own = {p.rpartition(".")[2]: h for p, h in hooks.items() if _is_part(p, parts.place)}

    def handle(call: AttentionCall) -> Tensor:
        queries = reader.so_far(call.query.shape[2]) if parts.reads_all else reader.now
        keys = readers[parts.keys].so_far(call.key.shape[2])
        out = attend(_with_inputs(call, own, queries, keys), own, queries, keys)
        names = ("raw", "heads") if gating is None else ("raw",)
        for name in names:
            out = own[name](out, queries, queries) if name in own else out
        return out

    with ExitStack() as changed:
        changed.enter_context(intercept_calls([(parts.place, parts.mechanism)], handle))
        if gating is not None and "heads" in own:
            finish = gating.finish

            def finished(x: Tensor, out: Tensor) -> Tensor:
                return own["heads"](finish(x, out), reader.now, reader.now)

            changed.enter_context(replaced(gating, finish=finished))
        yield


def _with_inputs(call: AttentionCall, hooks: Hooks, queries: Tokens, keys: Tokens) -> AttentionCall:
    """Return a call with edited queries, keys, values and states, without cut writes."""
    changes: dict[str, Any] = {}
    if "queries" in hooks:
        changes["query"] = hooks["queries"](call.query, queries, queries)
    if "keys" in hooks:
        changes["key"] = hooks["keys"](call.key, keys, keys)
    if "values" in hooks:
        changes["value"] = hooks["values"](call.value, keys, keys)
    if "unwritten" in hooks:
        value = changes.get("value", call.value)
        cut = hooks["unwritten"](torch.zeros_like(value[..., 0], dtype=torch.bool), keys, keys)
        changes["value"] = value.masked_fill(cut[..., None], 0)
        changes["gates"] = {
            name: gate.masked_fill(cut.view(*cut.shape, *[1] * (gate.ndim - 3)), 0)
            if name in WRITES
            else gate
            for name, gate in call.gates.items()
        }
    if "states" in hooks:
        changes["on_state"] = _on_state(hooks["states"], queries, call.on_state)
    return replace(call, **changes)


def _on_state(hook: Hook, tokens: Tokens, before: StateHandler | None) -> StateHandler:
    """Return a state handler that calls `before`, then a hook."""

    def handler(numbers: Tensor, t: int) -> Tensor:
        numbers = numbers if before is None else before(numbers, t)
        step = Tokens(tokens.prompt, tokens.positions[:, t : t + 1])
        return hook(numbers, step, step)

    return handler


def attend(call: AttentionCall, hooks: Hooks, queries: Tokens, keys: Tokens) -> Tensor:
    """Return the output of a call with edited scores and weights.

    The model's own kernel computes it if neither is edited.
    """
    mechanism, barred = call.mechanism, None
    if "allowed" in hooks:
        pairs = _pairs(call)
        barred = pairs & ~hooks["allowed"](pairs, queries, keys)
        if mechanism.supports.has("allowed"):
            call, barred = replace(call, mask=(call.mask or Mask()) & Mask.dense(~barred)), None
    if barred is None and not {"scores", "weights"} & hooks.keys():
        return call.compute()
    if isinstance(mechanism, ScoreAttention) and (barred is not None or "scores" in hooks):
        scores, allowed = mechanism.masked_scores(call.query, call.key, **call.options)
        if barred is not None:
            allowed = ~barred if allowed is None else allowed & ~barred
        scores = hooks["scores"](scores, queries, keys) if "scores" in hooks else scores
        weights = mechanism.normalize_scores(scores, allowed)
    else:
        weights = call.weights()
        if barred is not None:
            assert isinstance(mechanism, KernelAttention)
            weights = _renormalized(mechanism, weights.masked_fill(barred, 0))
    if "weights" in hooks:
        weights = hooks["weights"](weights, queries, keys)
    return replace(call, given_weights=weights).compute()


def _pairs(call: AttentionCall) -> Bool[Tensor, "b h q k"]:
    """Return a mask of the query–key pairs that the mask of a call allows."""
    (b, queries, q, _), k = call.query.shape, call.key.shape[2]
    dense = (call.mask or Mask()).to_dense(q, k, call.query.device)
    return dense.expand(b, queries // call.mechanism.queries_per_head, q, k)


def _renormalized(mechanism: KernelAttention, weights: Tensor) -> Tensor:
    """Divide weights by their sum; rows whose keys are all cut stay zero.

    Raises:
        NormalizerError: the sum of a row is negative.
    """
    total = weights.sum(-1, keepdim=True)
    alive = (weights != 0).any(-1, keepdim=True)
    if bool((alive & (total <= 0)).any()):
        raise mechanism.normalizer_error("after a cut, the weights of a query")
    return weights / total.masked_fill(~alive, 1.0)
