"""Tags are those of the words that the generator meant, and no word alone tells its tag."""

import re
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.tasks.examples import Example
from regard.tasks.names import FIRST_NAMES, LAST_NAMES, PLACES, PROFESSIONS
from regard.tasks.split import Split
from regard.tasks.tagging import (
    MENTIONS,
    TaggingConfig,
    bare,
    tags_of,
)

STOCK = {*LAST_NAMES, *PLACES}


@pytest.fixture(scope="module")
def made() -> Split:
    return TaggingConfig(training=2000, test=500).make(0)


def tagged(question: Example) -> list[tuple[str, str]]:
    words = map(bare, question.text.split())
    return list(zip(words, tags_of(question), strict=True))


def test_names_and_professions_are_tagged_and_nothing_else_is(made: Split) -> None:
    for question in (*made.training, *made.test):
        for word, tag in tagged(question):
            if word in PROFESSIONS:
                assert tag == "profession"
            elif word in FIRST_NAMES:
                assert tag == "person"
            else:
                assert (tag in ("person", "place")) == (word in STOCK)


def test_the_words_around_a_name_say_what_it_is(made: Split) -> None:
    """By the sentences themselves, which the generator's own tags must agree with."""
    mentions = [
        (re.escape(template).replace(r"\{name\}", r"(\w+)"), tag)
        for tag, templates in MENTIONS.items()
        for template in templates
    ]
    place = [r"was born in (\w+)\.", r"comes from (\w+)\.", r"native of (\w+)\."]
    patterns = [*mentions, *((p, "place") for p in place), (r"(\w+) is the birthplace", "place")]
    patterns += [(r"(\w+) (?:was born|comes|studied|works|earns)", "person")]
    found = Counter[str]()
    for question in made.training:
        meant = dict(tagged(question))
        for pattern, tag in patterns:
            for name in re.findall(pattern, question.text):
                assert meant[name] == tag
                found[pattern] += 1
    assert len(found) == len(patterns)


def test_no_name_of_the_test_is_in_training(made: Split) -> None:
    training, test = (
        {word for question in part for word, _ in tagged(question)} & {*STOCK, *FIRST_NAMES}
        for part in (made.training, made.test)
    )
    assert not training & test
    assert len(training & STOCK) == 144
    assert len(test & STOCK) == 36


def test_each_name_of_training_is_both_a_person_and_a_place(made: Split) -> None:
    tags = defaultdict[str, set[str]](set)
    for question in made.training:
        for word, tag in tagged(question):
            if word in STOCK:
                tags[word].add(tag)
    assert all(kinds == {"person", "place"} for kinds in tags.values())


def test_first_names_are_no_surnames_and_no_places() -> None:
    assert not {*FIRST_NAMES} & STOCK
    assert len(STOCK) == len(LAST_NAMES) + len(PLACES)


# words and tags


@given(st.lists(st.sampled_from(["a", "b.", "(c)"]), min_size=1, max_size=5), st.data())
def test_there_are_as_many_tags_as_words_or_it_is_told(
    words: list[str], data: st.DataObject
) -> None:
    tags = data.draw(st.lists(st.sampled_from(["X", "Y"]), min_size=1, max_size=5))
    question = Example(text="  ".join(words), answer=" ".join(tags), where="my.tsv:3")
    if len(tags) == len(words):
        assert tags_of(question) == tags
        return
    with pytest.raises(UserError, match=rf"^my\.tsv:3: has {len(words)} words and {len(tags)} tag"):
        TaggingConfig().check(question)


def test_a_text_without_tags_is_a_question() -> None:
    TaggingConfig().check(Example(text="a b"))


def test_marks_around_a_word_are_left_out() -> None:
    for word, left in [
        ("Leeds.", "Leeds"),
        ("(Ada)", "Ada"),
        ("O'Neill,", "O'Neill"),
        ("…", ""),
        ("Łódź", "Łódź"),
    ]:
        assert bare(word) == left


# guesses


def test_guesses_are_the_commonest_tag_of_all_and_of_each_word() -> None:
    training = [
        Example(text="a b, a", answer="X Y X"),
        Example(text="a b c.", answer="Z Y X"),
    ]
    test = [Example(text="b a, new"), Example(text="c")]
    assert TaggingConfig().baselines(training, test) == {
        "majority": ["X X X", "X"],
        "each word's commonest": ["Y X X", "X"],
    }
    equally_common = [Example(text="a a", answer="Y X")]
    assert TaggingConfig().baselines(equally_common, test[1:])["majority"] == ["X"]


def test_guesses_get_no_text_right_and_no_name(made: Split) -> None:
    for answers in TaggingConfig().baselines(made.training, made.test).values():
        assert not any(a == q.answer for a, q in zip(answers, made.test, strict=True))
        for answer, question in zip(answers, made.test, strict=True):
            for (word, tag), said in zip(tagged(question), answer.split(), strict=True):
                assert word not in STOCK or said != tag
