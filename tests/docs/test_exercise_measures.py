"""What the page of exercises measures, on planted weights and against the models themselves."""

from dataclasses import replace
from math import exp, log, prod
from pathlib import Path

import pytest
import torch
from exercise_files import measures, models, sentences

from regard.config import override
from regard.explorer.look import look
from regard.runs.run import Run

TINY = ("model.n_layers=2", "model.n_heads=2", "model.d_model=16")
PAIR = "I wanted to have a party.", "I bought a cake for it."


def run(name: str) -> Run:
    """An untrained model that knows all words."""
    plan, recipe = {
        "decoder": (models.plan_decoder, models.DECODER),
        "encoder": (models.plan_encoder, models.ENCODER),
    }[name]
    made: Run = plan(Path(name), override(recipe, TINY), 1500).run
    made.model.eval()
    return made


@pytest.fixture(scope="module")
def decoder() -> Run:
    return run("decoder")


@pytest.fixture(scope="module")
def encoder() -> Run:
    return run("encoder")


def test_blocks_of_a_sentence_that_looks_at_the_other() -> None:
    weights = torch.eye(4)[[2, 3, 2, 3]]
    shares = {name: x.item() for name, x in measures.blocks(weights, 2).items()}
    assert shares == {"A → A": 0, "A → B": 1, "B → A": 0, "B → B": 1}


def test_a_head_is_measured_on_texts_on_which_it_was_not_chosen() -> None:
    shares = torch.zeros(6, 2, 3)
    shares[::2, 1, 2] = 0.9  # chosen, and no good between
    shares[:, 0, 1] = 0.5
    head = measures.chosen(shares)
    assert (head.name, head.value) == ("1.2", 0)
    assert measures.chosen(shares[1:]).name == "0.1"


def test_shares_are_read_where_the_words_stand(decoder: Run) -> None:
    texts = sentences.texts_of(sentences.pronoun_text, 0, 3)
    found = measures.given(decoder, texts, "pronoun", "meant")
    for row, text in zip(found, texts, strict=True):
        (one,) = look(decoder, text.line).panels[0].maps
        words = [*text.first, *text.second]
        i = one.keys.index(words[text.places["pronoun"]])
        j = one.keys.index(words[text.places["meant"]])
        torch.testing.assert_close(row, measures.weights_of(one)[:, :, i, j])


def test_a_word_is_like_itself_and_in_the_first_layer_like_its_equal(encoder: Run) -> None:
    maps = [
        look(encoder, f"The boys like {end}").panels[0].maps[0]
        for end in ("to play in the park.", "the play in the theatre.")
    ]
    for values in measures.cosines(maps[0], maps[0], "play").values():
        torch.testing.assert_close(values, torch.ones(2, 2))
    for values in measures.cosines(*maps, "play").values():
        torch.testing.assert_close(values[0], torch.ones(2))
        assert (values[1] < 1 - 1e-5).all()


def test_words_are_as_surprising_as_the_next_word_says(decoder: Run) -> None:
    """P(the dog ran) = P(the) · P(dog after the) · P(ran after the dog)."""
    words = ["The", "dog", "ran"]
    first = torch.tensor([decoder.text_affixes.prefix])
    start = decoder.language_model(first)[0, -1].softmax(-1).detach()
    found = [start, *(measures.next_words(decoder, " ".join(words[:i])) for i in (1, 2))]
    chances = [measures.probability(decoder, p, [w]) for p, w in zip(found, words, strict=True)]
    assert exp(-3 * measures.surprise(decoder, "The dog ran")) == pytest.approx(
        prod(chances), rel=1e-4
    )
    assert measures.surprise(decoder, "The dog ran") == pytest.approx(
        log(decoder.tokenizer.size), rel=0.1
    )


def test_a_mask_hides_its_word_and_no_other(encoder: Run) -> None:
    hidden = measures.behind_mask(encoder, *PAIR, "cake")
    assert float(hidden.sum()) == pytest.approx(1)
    other = PAIR[1].replace("cake", "melon")
    # Exact: the same operations on the same shapes.
    assert torch.equal(hidden, measures.behind_mask(encoder, PAIR[0], other, "melon"))
    picnic = PAIR[0].replace("party", "picnic")
    assert not torch.equal(hidden, measures.behind_mask(encoder, picnic, PAIR[1], "cake"))


def test_even_weights_have_an_entropy_of_one(decoder: Run, encoder: Run) -> None:
    for model, text in ((decoder, ("The dog ran",)), (encoder, PAIR)):
        (one,) = look(model, *text).panels[0].maps
        n = len(one.keys)
        even = torch.ones(n, n).tril() if model is decoder else torch.ones(n, n)
        rows = (even / even.sum(-1, keepdim=True)).expand(1, 2, n, n)
        layers = [replace(x, record=replace(x.record, weights=rows)) for x in one.layers]
        found = measures.entropies(replace(one, layers=tuple(layers)))
        torch.testing.assert_close(found, torch.ones(2, 2))
