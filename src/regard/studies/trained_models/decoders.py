"""Attention of decoders to the words that determine the next: a small one, and a pretrained one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from regard.errors import UserError
from regard.explorer.attention_maps import AttentionMap
from regard.explorer.head_scores import SINK, head_scores
from regard.explorer.induction import attend_repeated_sequence, induction_scores
from regard.explorer.intercept import capture_attention
from regard.explorer.look import look
from regard.runs.run import Run
from regard.studies.figure import Chart, bar_chart, chart, figure, series
from regard.studies.finding import Measurements, at_least, at_most, informational, named, table
from regard.studies.model_cache import cached_run
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.trained_models.heads import by_layer, value_norms, weights_of
from regard.studies.trained_models.pretrained import Decoder, load_decoder
from regard.studies.trained_models.reading import HEADS, TESTED, Steps, plan_decoder
from regard.studies.trained_models.sentences import Labeled, labeled_texts

SHORT, ACROSS, PRONOUN = "short sentence", "noun between", "pronoun"
WORDS = {
    SHORT: "verb → subject",
    ACROSS: "word before the verb → subject",
    PRONOUN: "word before it → the name",
}
"""Words of the query and the key."""


class Place(NamedTuple):
    """A text with the place of a query and the place of the word that it should attend to."""

    text: Labeled
    query: int
    key: int


class Found(NamedTuple):
    """The head chosen on one half of the texts, measured on the others."""

    head: int
    share: float
    """Weight on the right word."""
    itself: float
    """Weight on the word of the query."""


@study(trains=True)
def three_sentences(steps: Steps = 1500, seed: Seed = 0) -> EvidenceParts:
    r"""What does a decoder attend to in a short sentence, across another noun, and before a
    pronoun?

    It attends to words that predict the next one. Before the verb a head attends to the subject,
    across the noun between them and hardly to that noun; before a pronoun, to the name that it
    refers to. Before training, no head does.

    $$ P(x_{t+1} \mid x_1 \dots x_t) \text{ is computed at position } t $$

    A small decoder of our own learns to predict the next word of generated texts, such as "surely
    the old dogs near the house bark with Ada . perhaps she looked …". A head is chosen on one half
    of new texts and measured on the other, by its weight from one word to another.

    Figure. Weight of the best head on the right word, in new texts: at the verb of a short sentence
    to its subject; before the verb, across another noun, to the subject; before a pronoun to the
    name that it refers to.
    """
    run = cached_run(plan_decoder(steps, seed))
    new = plan_decoder(1, seed).run
    new.model.eval()
    texts = labeled_texts(seed, "test", TESTED)
    places = places_of(texts)
    after, before = (
        {name: best(weights_on(one, found), found) for name, found in places.items()}
        for one in (run, new)
    )
    yield from judged_sentences(after, before, probability_of_next(run, places[ACROSS]))
    name = "first word: relative change of its keys and values by later words"
    yield at_most(name, change_of_first(run, texts), 1e-5)
    heads = [(name, f"{one.head // HEADS}.{one.head % HEADS}") for name, one in after.items()]
    yield table(["sentence", "best head"], heads)
    names = ["verb → subject", "word before the verb → subject", "word before the pronoun → name"]
    groups = {
        label: {name: one.share for name, one in zip(names, found.values(), strict=True)}
        for label, found in {"trained": after, "before training": before}.items()
    }
    yield bar_chart(groups, y="weight of the best head", y_limits=(0, 1.05))
    yield look(named(run, "decoder"), places[ACROSS][0].text.text).data


def places_of(texts: Sequence[Labeled]) -> dict[str, list[Place]]:
    """Return the queries and keys of the three sentences."""
    found: dict[str, list[Place]] = {SHORT: [], ACROSS: [], PRONOUN: []}
    for text in texts:
        ((verb, subject),), ((pronoun, name),) = text.pairs["subject–verb"], text.pairs["pronoun"]
        if verb == subject + 1:
            found[SHORT].append(Place(text, verb, subject))
        else:
            found[ACROSS].append(Place(text, verb - 1, subject))
        found[PRONOUN].append(Place(text, pronoun - 1, name))
    return found


@torch.inference_mode()
def weights_on(run: Run, places: Sequence[Place]) -> list[Float[Tensor, "heads n n"]]:
    """Return the weights of all heads on the text of each place."""
    rows = [torch.tensor([run.tokenizer.encode(place.text.text)]) for place in places]
    records = [capture_attention(run.model, ids) for ids in rows]
    return [torch.cat([layer.weights[0] for layer in layers]) for layers in records]


def best(weights: Sequence[Float[Tensor, "heads n n"]], places: Sequence[Place]) -> Found:
    """Return the head with the most weight on the right word; `weights` are one row per place."""
    pairs = zip(weights, places, strict=True)
    shares = torch.stack([each[:, place.query, [place.key, place.query]] for each, place in pairs])
    head = int(shares[::2, :, 0].mean(0).argmax())
    return Found(head, *shares[1::2, head].mean(0).tolist())


@torch.inference_mode()
def probability_of_next(run: Run, places: Sequence[Place]) -> float:
    """Return the mean probability of the word after the query."""
    found = []
    for place in places:
        ids = run.tokenizer.encode(place.text.text)
        logits = run.language_model(torch.tensor([ids]))[0, place.query]
        found.append(logits.softmax(-1)[ids[place.query + 1]])
    return float(torch.stack(found).mean())


@torch.inference_mode()
def change_of_first(run: Run, texts: Sequence[Labeled]) -> float:
    """Return the largest relative change of the first word's keys and values between texts."""
    first: dict[str, Tensor] = {}
    change = 0.0
    for text in texts:
        ids = torch.tensor([run.tokenizer.encode(text.text)])
        records = capture_attention(run.model, ids)
        found = torch.stack([x[0, :, 0] for one in records for x in (one.key, one.value)])
        known = first.setdefault(text.words[0], found)
        change = max(change, float((found - known).norm() / known.norm()))
    return change


def judged_sentences(
    after: Mapping[str, Found], before: Mapping[str, Found], probability: float
) -> Measurements:
    """Yield the measurements that the claim depends on; `probability` is that of the verb."""
    gain = min(after[name].share - before[name].share for name in (ACROSS, PRONOUN))
    yield informational(f"{SHORT}: verb → subject, best head", after[SHORT].share)
    yield at_least(f"{ACROSS}: word before the verb → subject, best head", after[ACROSS].share, 0.5)
    yield at_most(f"{ACROSS}: the same head → the noun between", after[ACROSS].itself, 0.3)
    yield at_least(f"{ACROSS}: probability of the verb", probability, 0.8)
    yield at_least(f"{PRONOUN}: word before it → the name, best head", after[PRONOUN].share, 0.5)
    yield at_least(f"{ACROSS} and {PRONOUN}: least gain of the best head by training", gain, 0.3)


QUANTITIES = {
    "first": "weight on the first token",
    "entropy": "entropy / ln i",
    "distance": "mean distance in tokens",
}


@study(trains=True)
def pretrained_decoder(
    decoder: Decoder = "", texts: Annotated[int, Meta(ge=8, le=200)] = 48, seed: Seed = 0
) -> EvidenceParts:
    r"""What do the heads of a pretrained decoder attend to, and how do its layers differ?

    No head attends to a later token. One head attends to the previous token, and another, where a
    sequence repeats, to the token that followed last time. Before the verb, a head attends to the
    subject across another noun. At least half of the heads give the first token a weight above 0.3;
    its value adds little. With random weights, all heads are nearly uniform.

    $$ \mathrm{induction}(h) = \frac{1}{m} \sum_{i = m + 1}^{2m} A^h_{i, i - m + 1} $$

    The model was trained by others on text of the web, and its weights are quantized. It reads the
    texts of study `three-sentences`. A head for a word is chosen on one half of the texts and
    measured on the other. For induction, m random tokens are read twice.

    Figure. Weight on the first token, entropy and distance by layer, averaged over heads and texts.
    The first two layers attend broadly, two inner ones to near tokens, and most of the others to
    the first token.

    Args:
        texts: number of texts
    """
    read = labeled_texts(seed, "pretrained", texts)
    if min(map(len, places_of(read).values())) < 2:
        raise UserError(
            f"pretrained-decoder: of the {texts} texts of seed {seed}, fewer than two have one of "
            "the sentences; give more texts, or another seed"
        )
    model = load_decoder(decoder)
    maps = [model.attention_maps(text.text)[0] for text in read]
    heads = head_scores(maps)
    later = max(weights_of(one).triu(1).max() for one in maps)
    yield at_most("largest weight on a later token", later, 0)
    yield from _first_token(by_layer(heads, "first") > SINK, maps)
    repeated = induction_scores(attend_repeated_sequence(model, seed=seed))
    shares = {
        "previous token": by_layer(heads, "previous").flatten(),
        "token after the last occurrence, in a repeated sequence": repeated["induction twice"],
        "same token, in a repeated sequence": repeated["duplicate twice"],
    }
    for name, share in shares.items():
        yield at_least(f"{name}, best head", share.max(), 0.4)
    yield from _words(read, maps)
    layers = {name: by_layer(heads, score).mean(1) for score, name in QUANTITIES.items()}
    yield from _layers(layers)
    new = model.untrained()
    fresh = head_scores([new.attention_maps(text.text)[0] for text in read[:4]])
    least = by_layer(fresh, "entropy").min()
    yield at_least("random weights: entropy of a head / ln i, least", least, 0.9)
    columns = dict(layers) | {
        f"{name}, best head": share.view(len(maps[0].layers), -1).amax(1)
        for name, share in shares.items()
    }
    rows = zip(*(x.tolist() for x in columns.values()), strict=True)
    yield table(["layer", *columns], [(i, *row) for i, row in enumerate(rows)])
    yield figure(*_charts(layers))


def _charts(layers: Mapping[str, Float[Tensor, " layers"]]) -> Iterator[Chart]:
    for name, means in layers.items():
        dots = series(range(len(means)), means, style="line with dots")
        yield chart(dots, x="layer", y=name.replace("ln i", r"$\ln i$"))


def _first_token(sinks: Bool[Tensor, "layers heads"], maps: Sequence[AttentionMap]) -> Measurements:
    """Yield how many heads attend to the first token, and how little its value adds."""
    share = sinks.double().mean()
    yield at_least(f"first token: share of heads with a weight above {SINK}", share, 0.5)
    norms = [value_norms(one) for one in maps]
    ratios = torch.stack([each[..., 1:].mean(-1) / each[..., 0] for each in norms]).mean(0)
    name = "‖v W_O‖ of other tokens over the first's, median of these heads"
    yield at_least(name, ratios[sinks].median(), 2)


def _words(read: Sequence[Labeled], maps: Sequence[AttentionMap]) -> Measurements:
    """Yield the weight of the best head from one word to another, by form of the sentence."""
    of_text = {
        text.text: between_words(weights_of(one).flatten(0, 1), one.keys)
        for text, one in zip(read, maps, strict=True)
    }
    for form, places in places_of(read).items():
        found = best([of_text[place.text.text] for place in places], places)
        name = f"{form}: {WORDS[form]}, best head"
        if form == ACROSS:
            yield at_least(name, found.share, 0.4)
            yield informational(f"{form}: the same head → the noun between", found.itself)
        else:
            yield informational(name, found.share)


def between_words(
    weights: Float[Tensor, "heads n n"], tokens: Sequence[str]
) -> Float[Tensor, "heads words words"]:
    """Return the weight from the last token of each word to all tokens of another."""
    spans = spans_of_words(tokens)
    last = [span.stop - 1 for span in spans]
    return torch.stack([weights[:, last, span].sum(-1) for span in spans], -1)


def spans_of_words(tokens: Sequence[str]) -> list[slice]:
    """Return the tokens of each word, if a token that begins a word begins with the space."""
    starts = [i for i, token in enumerate(tokens) if i == 0 or token.startswith(" ")]
    return [
        slice(start, end) for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True)
    ]


def _layers(layers: Mapping[str, Float[Tensor, " layers"]]) -> Measurements:
    """Yield each quantity of the first layer, and the mean and the largest of the others."""
    for name, means in layers.items():
        yield informational(f"{name}: first layer", means[0])
        yield informational(f"{name}: mean of the others", means[1:].mean())
        yield informational(f"{name}: largest of the others", means[1:].max())
