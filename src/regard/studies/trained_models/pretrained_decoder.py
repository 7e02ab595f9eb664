"""Attention patterns of the heads and layers of a pretrained decoder."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from regard.explorer.attention_maps import AttentionMap
from regard.explorer.head_scores import SINK, head_scores
from regard.explorer.induction import attend_repeated_sequence, induction_scores
from regard.studies.figure import chart, figure, series
from regard.studies.finding import Measurements, at_least, at_most, informational, table
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.trained_models.heads import by_layer, value_norms, weights_of
from regard.studies.trained_models.pretrained import Decoder, load_decoder, spans_of_words
from regard.studies.trained_models.sentences import Labeled, labeled_texts
from regard.studies.trained_models.three_sentences import ACROSS, PRONOUN, SHORT, places_of

QUANTITIES = {
    "first": "weight on the first token",
    "entropy": "entropy / ln i",
    "distance": "mean distance in tokens",
}
Layers = Mapping[str, Float[Tensor, " layers"]]
"""Each quantity by layer, averaged over its heads."""


@study(trains=True)
def pretrained_decoder(
    decoder: Decoder = "",
    texts: Annotated[int, Meta(ge=8, le=200)] = 48,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What do the heads of a pretrained decoder attend to, and how do its layers differ?

    No head attends to a later token. One head attends to the previous token, and another, where a
    sequence repeats, to the token that followed last time. Before the verb, a head attends to the
    subject across another noun. At least half of the heads give the first token a weight above 0.3;
    its value adds little. With random weights, all heads are nearly uniform.

    $$ \mathrm{induction}(h) = \frac{1}{m} \sum_{i = m + 1}^{2m} A^h_{i, i - m + 1} $$

    The model was trained by others on text of the web, and its weights are quantized. It reads
    generated texts of two sentences, such as "surely the old dogs near the house bark with Ada .
    perhaps she looked …". A head for a word is chosen on one half of the texts and measured on the
    other. For induction, m random tokens are read twice. The weight of a head on a token times the
    norm of v W_O says how much the token adds.

    Figure. Weight on the first token, entropy and distance by layer, averaged over heads and texts.
    The first two layers attend broadly, two inner ones to near tokens, and most of the others to
    the first token.

    Args:
        texts: number of texts
    """
    model = load_decoder(decoder)
    read = labeled_texts(seed, "pretrained", texts)
    maps = [model.attention_maps(text.text)[0] for text in read]
    heads = head_scores(maps)
    later = max(weights_of(one).triu(1).max() for one in maps)
    yield at_most("largest weight on a later token", later, 0)
    yield from _first_token(by_layer(heads, "first") > SINK, maps)
    repeated = induction_scores(attend_repeated_sequence(model, seed=seed))
    best = {
        "previous token": by_layer(heads, "previous").flatten(),
        "token after the last occurrence, in a repeated sequence": repeated["induction twice"],
        "same token, in a repeated sequence": repeated["duplicate twice"],
    }
    for name, share in best.items():
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
        for name, share in best.items()
    }
    rows = zip(*(x.tolist() for x in columns.values()), strict=True)
    yield table(["layer", *columns], [(i, *row) for i, row in enumerate(rows)])
    yield figure(
        *(
            chart(
                series(range(len(means)), means, style="line with dots"),
                x="layer",
                y=name.replace("ln i", r"$\ln i$"),
            )
            for name, means in layers.items()
        )
    )


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
    names = {
        SHORT: "verb → subject",
        ACROSS: "word before the verb → subject",
        PRONOUN: "word before it → the name",
    }
    for form, places in places_of(read).items():
        found = [(of_text[place.text.text][:, place.query], place) for place in places]
        shares = torch.stack([weights[:, place.key] for weights, place in found])
        head = int(shares[::2].mean(0).argmax())
        measured = shares[1::2, head].mean()
        if form == ACROSS:
            yield at_least(f"{form}: {names[form]}, best head", measured, 0.4)
            own = torch.stack([weights[head, place.query] for weights, place in found])[1::2].mean()
            yield informational(f"{form}: the same head → the noun between", own)
        else:
            yield informational(f"{form}: {names[form]}, best head", measured)


def between_words(
    weights: Float[Tensor, "heads n n"], tokens: Sequence[str]
) -> Float[Tensor, "heads words words"]:
    """Return the weight from the last token of each word to all tokens of another."""
    spans = spans_of_words(tokens)
    last = [span.stop - 1 for span in spans]
    return torch.stack([weights[:, last, span].sum(-1) for span in spans], -1)


def _layers(layers: Layers) -> Measurements:
    """Yield each quantity of the first layer, and the mean and the largest of the others."""
    for name, means in layers.items():
        yield informational(f"{name}: first layer", means[0])
        yield informational(f"{name}: mean of the others", means[1:].mean())
        yield informational(f"{name}: largest of the others", means[1:].max())
