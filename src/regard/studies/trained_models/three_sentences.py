"""What a decoder attends to: at a verb, across another noun, and before a pronoun."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.explorer.intercept import capture_attention
from regard.explorer.look import look
from regard.runs.run import Run
from regard.studies.figure import bars, one_chart
from regard.studies.finding import (
    EvidenceParts,
    Measurement,
    at_least,
    at_most,
    informational,
    named,
    table,
)
from regard.studies.model_cache import cached_run
from regard.studies.study import Seed, study
from regard.studies.trained_models.reading import HEADS, Steps, plan_decoder
from regard.studies.trained_models.sentences import Labeled, labeled_texts

TEXTS = 150
"""New texts, on which heads are chosen and measured."""
SHORT, ACROSS, PRONOUN = "short sentence", "noun between", "pronoun"


class Place(NamedTuple):
    """Where a query attends from in a text, the word it should find, and the next word."""

    text: Labeled
    query: int
    key: int


class Found(NamedTuple):
    """The best head of one half of the texts, on the others."""

    head: int
    share: float
    """Its weight on the right word."""
    itself: float
    """Its weight on the word of the query."""
    probability: float
    """Of the word that follows."""


@study(trains=True)
def three_sentences(steps: Steps = 1500, seed: Seed = 0) -> EvidenceParts:
    r"""What does a decoder attend to in a short sentence, across another noun, and before a
    pronoun?

    It attends to what predicts the next word. Before the verb a head attends to the subject, across
    the noun that stands between and hardly to that noun; before a pronoun, to the name that it
    refers to. Before training, no head does.

    $$ P(x_{t+1} \mid x_1 \dots x_t) \text{ is made at } t $$

    A small decoder learns to predict the next word of generated texts, such as "surely the old
    dogs near the house bark with Ada . perhaps she looked …". On new texts the weight of each head
    is measured from one word to another; a head is chosen on one half of the texts and measured on
    the other.

    In the short sentence ("the dogs bark") the query is the verb, the key its subject. The course
    sees the verb attend to its subject. A decoder doesn't predict the verb there, but what follows
    it, which is the same for all subjects: whether a head attends to the subject differs from seed
    to seed. It is the word before the verb that has to know the subject: in the second sentence
    that word is another noun ("the dogs near the house"), and still a head passes over it. In the
    third a pronoun follows, and a head of the word before it attends to the name of the sentence
    before.

    The first word has seen only itself. Its keys and values in two texts that begin with it are
    the same, so a head that attends to it learns nothing about the rest of the text.

    Queries, keys and values of each head are in the view, step by step.

    Figure. Weight that the best head gives to the word in question, in new texts: at the verb of a
    short sentence to its subject; before the verb, across another noun, to the subject; before a
    pronoun to the name that it refers to.
    """
    run = cached_run(plan_decoder(steps, seed))
    new = plan_decoder(1, seed).run
    new.model.eval()
    texts = labeled_texts(seed, "test", TEXTS)
    places = places_of(texts)
    after, before = ({name: best(one, of) for name, of in places.items()} for one in (run, new))
    yield from judged(after, before)
    name = "first word: change of its keys and values by all later words, relative"
    yield at_most(name, change_of_first(run, texts), 1e-5)
    rows = [
        (name, f"{f.head // HEADS}.{f.head % HEADS}", f.share, f.itself, before[name].share)
        for name, f in after.items()
    ]
    columns = ["sentence", "best head", "weight", "weight of the word itself", "before training"]
    yield table(columns, rows)
    names = ["verb → subject", "word before the verb → subject", "word before the pronoun → name"]
    yield one_chart(
        bars([found.share for found in after.values()], "trained"),
        bars([found.share for found in before.values()], "before training"),
        names=names,
        y="weight of the best head",
        y_limits=(0, 1.05),
    )
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
    """Return the head that gives the right word most."""
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


def judged(after: Mapping[str, Found], before: Mapping[str, Found]) -> Iterator[Measurement]:
    """Yield the measurements that the claim depends on."""
    gain = min(after[name].share - before[name].share for name in (ACROSS, PRONOUN))
    yield informational(f"{SHORT}: verb → subject, best head", after[SHORT].share)
    yield at_least(f"{ACROSS}: word before the verb → subject, best head", after[ACROSS].share, 0.5)
    yield at_most(f"{ACROSS}: the same head → the noun between", after[ACROSS].itself, 0.3)
    yield at_least(f"{ACROSS}: probability of the verb", after[ACROSS].probability, 0.8)
    yield at_least(f"{PRONOUN}: word before it → the name, best head", after[PRONOUN].share, 0.5)
    yield informational(f"{PRONOUN}: probability of the pronoun", after[PRONOUN].probability)
    yield at_least("least of the last two sentences, beyond before training", gain, 0.3)
