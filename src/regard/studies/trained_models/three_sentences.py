"""Attention of a decoder at a verb, across another noun, and before a pronoun."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.explorer.intercept import capture_attention
from regard.explorer.look import look
from regard.runs.run import Run
from regard.studies.figure import bar_chart
from regard.studies.finding import Measurements, at_least, at_most, informational, named, table
from regard.studies.model_cache import cached_run
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.trained_models.reading import HEADS, Steps, plan_decoder
from regard.studies.trained_models.sentences import Labeled, labeled_texts

TEXTS = 150
"""Number of new texts, on which heads are chosen and measured."""
SHORT, ACROSS, PRONOUN = "short sentence", "noun between", "pronoun"


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
    probability: float
    """Probability of the next word."""


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

    In the short sentence the query is the verb and the key its subject; whether a head attends to
    it varies with the seed. In the second sentence the query is the noun before the verb, in the
    third the word before the pronoun.

    Figure. Weight of the best head on the right word, in new texts: at the verb of a short sentence
    to its subject; before the verb, across another noun, to the subject; before a pronoun to the
    name that it refers to.
    """
    run = cached_run(plan_decoder(steps, seed))
    new = plan_decoder(1, seed).run
    new.model.eval()
    texts = labeled_texts(seed, "test", TEXTS)
    places = places_of(texts)
    after, before = (
        {name: best(one, found) for name, found in places.items()} for one in (run, new)
    )
    yield from judged(after, before)
    name = "first word: relative change of its keys and values by later words"
    yield at_most(name, change_of_first(run, texts), 1e-5)
    rows = [
        (name, f"{f.head // HEADS}.{f.head % HEADS}", f.share, f.itself, before[name].share)
        for name, f in after.items()
    ]
    columns = ["sentence", "best head", "weight", "weight of the word itself", "before training"]
    yield table(columns, rows)
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
def best(run: Run, places: Sequence[Place]) -> Found:
    """Return the head with the most weight on the right word."""
    shares, itself, probabilities = [], [], []
    for place in places:
        ids = torch.tensor([run.tokenizer.encode(place.text.text)])
        weights = torch.cat([layer.weights[0] for layer in capture_attention(run.model, ids)])
        shares.append(weights[:, place.query, place.key])
        itself.append(weights[:, place.query, place.query])
        logits: Float[Tensor, "1 n vocabulary"] = run.language_model(ids)
        probabilities.append(logits[0, place.query].softmax(-1)[ids[0, place.query + 1]])
    given, own = torch.stack(shares), torch.stack(itself)
    head = int(given[::2].mean(0).argmax())
    return Found(
        head=head,
        share=float(given[1::2, head].mean()),
        itself=float(own[1::2, head].mean()),
        probability=float(torch.stack(probabilities).mean()),
    )


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


def judged(after: Mapping[str, Found], before: Mapping[str, Found]) -> Measurements:
    """Yield the measurements that the claim depends on."""
    gain = min(after[name].share - before[name].share for name in (ACROSS, PRONOUN))
    yield informational(f"{SHORT}: verb → subject, best head", after[SHORT].share)
    yield at_least(f"{ACROSS}: word before the verb → subject, best head", after[ACROSS].share, 0.5)
    yield at_most(f"{ACROSS}: the same head → the noun between", after[ACROSS].itself, 0.3)
    yield at_least(f"{ACROSS}: probability of the verb", after[ACROSS].probability, 0.8)
    yield at_least(f"{PRONOUN}: word before it → the name, best head", after[PRONOUN].share, 0.5)
    yield at_least(f"{ACROSS} and {PRONOUN}: least gain of the best head by training", gain, 0.3)
