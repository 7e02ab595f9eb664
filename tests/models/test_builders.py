"""Every family with every head: what pads or accompanies a row, or comes later, changes nothing."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from torch import Tensor, nn

from regard.dropout import Dropout
from regard.errors import UserError
from regard.models.builders import (
    LanguageModel,
    MaskedLanguageModel,
    SequenceToSequence,
    make_model,
)
from regard.models.config import (
    EncoderConfig,
    EncoderDecoderConfig,
    FixedWindowConfig,
    RecurrentConfig,
    RecurrentEncoderDecoderConfig,
    TiedConfig,
    TransformerConfig,
)
from regard.models.head_config import (
    HEADS,
    ClassificationHeadConfig,
    TokenClassificationHeadConfig,
)
from regard.models.seq2seq import EncoderDecoder
from tiny_families import (
    COVERING,
    FAMILIES,
    HEAD_CONFIGS,
    MODELS,
    Row,
    kind,
    reads_both_ways,
    results,
    tiny,
    tiny_batch,
    writer,
)
from tiny_recurrent import (
    BLOCK,
    VOCABULARY,
    Conversation,
    close,
    conversations,
    joined,
    padded,
    texts,
    tokens,
)

WRITERS = [name for name in MODELS if name.endswith(": lm")]
PAIRS = [name for name in WRITERS if "encoder-decoder" in name]
BOTH_WAYS = [
    name
    for name in MODELS
    if not name.endswith((": classification", ": embedding"))
    and (reads_both_ways(MODELS[name][0]) or name.endswith(": reconstruction"))
]
checked = settings(deadline=None, derandomize=True, max_examples=8)
rows_of_a_batch = st.lists(st.tuples(texts, texts), min_size=1, max_size=4)


# Padding, order and size of a batch


@pytest.mark.parametrize("name", COVERING)
@checked
@given(rows=rows_of_a_batch, padding=tokens, data=st.data())
@torch.no_grad()
def test_rows_know_nothing_of_one_another_nor_of_padding(
    rows: list[Row], padding: int, data: st.DataObject, name: str
) -> None:
    model = tiny(*MODELS[name])
    order = data.draw(st.permutations(range(len(rows))))
    together = results(model, [rows[row] for row in order], padding=padding)
    for row, result in zip(order, together, strict=True):
        assert close(result, results(model, [rows[row]])[0])


# Causality


def changed(text: list[int], place: int) -> list[int]:
    """The text with another token at a place."""
    return [*text[:place], (text[place] + 1) % VOCABULARY, *text[place + 1 :]]


@pytest.mark.parametrize("name", [*WRITERS, "decoder: token-classification"])
@checked
@given(row=st.tuples(texts, texts), data=st.data())
@torch.no_grad()
def test_a_later_token_changes_nothing_earlier(row: Row, data: st.DataObject, name: str) -> None:
    model, (text, source) = tiny(*MODELS[name]), row
    place = data.draw(st.integers(0, len(text) - 1))
    one, other = (results(model, [(t, source)])[0] for t in (text, changed(text, place)))
    # Exact: the shapes are the same, and what is hidden has a weight of 0.
    assert torch.equal(one[:place], other[:place])
    assert not torch.allclose(one[place], other[place])


@pytest.mark.parametrize("name", [*BOTH_WAYS, *PAIRS])
@torch.no_grad()
def test_where_both_sides_are_read_every_token_changes_all(name: str) -> None:
    """The text, or the source of a pair."""
    model, read = tiny(*MODELS[name]), [3, 1, 4, 1, 5]

    def result(ids: list[int]) -> Tensor:
        return results(model, [([2, 7, 1], ids) if name in PAIRS else (ids, [])])[0]

    for place in range(5):
        change = (result(read) - result(changed(read, place))).abs().amax(-1)
        assert bool((change > 1e-10).all()), place


# States


@pytest.mark.parametrize("name", WRITERS)
@checked
@given(conversation=conversations(), padding=tokens, data=st.data())
@torch.no_grad()
def test_what_is_remembered_changes_nothing(
    conversation: Conversation, padding: int, data: st.DataObject, name: str
) -> None:
    """Rows that go on from states, which are picked between turns, are as each text alone."""
    model, rows = tiny(*MODELS[name]), list(range(len(conversation)))
    sources = data.draw(st.lists(texts, min_size=len(rows), max_size=len(rows)))
    writes = writer(model, *padded(sources))
    states = writes.init_state(len(rows), BLOCK)
    for turn in range(len(conversation[0])):
        ids, lengths = padded([conversation[row][turn] for row in rows], padding=padding)
        keep = torch.arange(ids.shape[1]) < lengths[:, None]
        logits, states = writes.extend(ids, states, None if bool(keep.all()) else keep)
        for row, found in zip(rows, logits, strict=True):
            text = joined(conversation[row][: turn + 1])
            assert close(found, results(model, [(text, sources[row])])[0][-1])
        picked = data.draw(st.lists(st.sampled_from(range(len(rows))), min_size=1, max_size=4))
        states, rows = states.reorder(torch.tensor(picked)), [rows[i] for i in picked]


# Context length, dropout, recomputation


@pytest.mark.parametrize("name", dict.fromkeys([*COVERING, *WRITERS]))
def test_more_tokens_than_the_context_are_refused(name: str) -> None:
    config, model, long = MODELS[name][0], tiny(*MODELS[name]), [0] * (BLOCK + 1)
    too_many = pytest.raises(ValueError, match=f"{BLOCK + 1} tokens don't fit the model's context")
    if isinstance(model, LanguageModel | SequenceToSequence):
        with too_many:
            writer(model, *padded([[1]])).init_state(1, BLOCK + 1)
    if not isinstance(config, TransformerConfig | EncoderDecoderConfig):
        with too_many:
            results(model, [(long, [1])])
    if isinstance(config, RecurrentEncoderDecoderConfig):
        with too_many:
            results(model, [([1], long)])


BRANCHES = ("self_attention.attention.dropout", "dropout_attention", "dropout_feed_forward")
DROPOUTS = {
    "decoder": ["dropout", *(f"layers.{i}.{place}" for i in (0, 1) for place in BRANCHES)],
    "rnn, gru": ["dropout", "recurrence.dropouts.1"],
    "fixed-window": ["dropout_embedding", "dropout_hidden"],
}
"""The dropouts of each body, in the order of their calls."""


@pytest.mark.parametrize("family", DROPOUTS)
def test_dropout_is_everywhere_in_training_and_off_in_evaluation(family: str) -> None:
    wet, dry = (replace(FAMILIES[family], dropout=share) for share in (0.5, 0.0))
    model, plain = (tiny(config, HEAD_CONFIGS["lm"]) for config in (wet, dry))
    ids, calls = torch.tensor([[1, 2, 3, 4]]), list[str]()
    for name, module in model.body.named_modules():
        if isinstance(module, Dropout) and module.p:
            assert module.p == 0.5
            module.register_forward_hook(lambda *_, name=name: calls.append(name))
    # Exact: the same operations on the same shapes.
    assert torch.equal(model(ids), plain(ids))
    calls.clear()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model.train()
        assert not torch.allclose(model(ids), model(ids))
    assert calls == DROPOUTS[family] * 2


CHECKPOINTED = [name for name in COVERING if isinstance(MODELS[name][0], TransformerConfig)]


@pytest.mark.parametrize(
    ("name", "compiled"),
    [*((name, False) for name in CHECKPOINTED), ("decoder, embeddings: lm", True)],
)
def test_recomputed_activations_give_the_same_gradients(name: str, compiled: bool) -> None:
    model = tiny(*MODELS[name]).train()
    batch, weights = tiny_batch(model), [*model.parameters()]
    plain = torch.autograd.grad(model.loss(batch), weights)
    for layer in model.body.layers:  # type: ignore[union-attr]
        layer.gradient_checkpointing = True
    body = torch.compile(model.body, backend="eager") if compiled else None
    for one, other in zip(
        torch.autograd.grad(model.loss(batch, body), weights), plain, strict=True
    ):
        assert close(one, other)


# Heads


def test_a_head_that_does_not_fit_is_refused_in_one_line() -> None:
    unfit = [pair for pair in product(FAMILIES, HEAD_CONFIGS) if ": ".join(pair) not in MODELS]
    assert unfit
    for family, head in unfit:
        config = FAMILIES[family]
        with pytest.raises(UserError, match=r"^.+$") as refused:
            make_model(config, HEAD_CONFIGS[head], VOCABULARY)
        fitting = " or ".join(name for name, heads in HEADS.items() if head in heads)
        if head in HEADS[kind(config)]:
            assert "next token is causal; leave it out" in str(refused.value)
        else:
            assert str(refused.value).startswith(f"head.kind={head}: is no head for model.kind=")
            assert str(refused.value).endswith(f"; {head} fits {fitting}")


@pytest.mark.parametrize(
    "name", [n for n in MODELS if n.endswith("lm") and hasattr(MODELS[n][0], "tie_head")]
)
def test_a_tied_head_is_the_embedding(name: str) -> None:
    config, model = MODELS[name][0], tiny(*MODELS[name])
    assert isinstance(model, LanguageModel | MaskedLanguageModel | SequenceToSequence)
    assert isinstance(
        config, TiedConfig | EncoderDecoderConfig | RecurrentConfig | FixedWindowConfig
    )
    scores = model.head.scores if isinstance(model, MaskedLanguageModel) else model.head
    body = model.body.decoder if isinstance(model.body, EncoderDecoder) else model.body
    assert isinstance(body.embedding, nn.Embedding)
    assert (scores.weight is body.embedding.weight) == config.tie_head


@pytest.mark.parametrize("kind", [ClassificationHeadConfig, TokenClassificationHeadConfig])
@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (("O",), "needs at least two labels, not 'O' alone"),
        (("x", "y", "x"), "lists 'x' 2 times; write each label once"),
    ],
)
def test_one_label_or_a_label_twice_is_refused(
    kind: type[ClassificationHeadConfig | TokenClassificationHeadConfig],
    labels: tuple[str, ...],
    says: str,
) -> None:
    """A run trained to a loss of 0, or with a class that no row has."""
    config = EncoderConfig(d_model=8, n_heads=2, n_layers=1, context_length=8)
    with pytest.raises(UserError, match=says):
        make_model(config, kind(labels=labels), 5)
