"""Text becomes ids and comes back unchanged; what can't is refused by name."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.tasks.world import WorldConfig, make_world
from regard.text.config import (
    BytePairsConfig,
    CharactersConfig,
    HuggingFaceConfig,
    TokenizerConfig,
    WordsConfig,
)
from regard.text.corpus import Document
from regard.text.tokenizer import (
    Characters,
    OutOfVocabularyError,
    Pieces,
    Tokenizer,
    encode_documents,
    numbers,
    tokenizer_from_json,
    train_tokenizer,
)
from regard.text.vocabulary import MASK, PAD

KINDS: dict[str, TokenizerConfig] = {
    "characters": CharactersConfig(),
    "words": WordsConfig(),
    "byte-pairs": BytePairsConfig(size=300),
}
SPECIAL = "□⁇"
WORDS = ("Ada", "Finch", "was", "born", "naïve", "Łódź", "e\u0301te\u0301", "語", "x1", "_", "don")
MARKS = (".", ",", "?", "(", ")", "'", "—", "¿", "✈", "€")
SPACES = (" ", "  ", "   ", "\n", "\n\n", "\t", " \n ", "\u00a0", "\u3000", "\r\n")
KNOWN = [form for piece in (*WORDS, *MARKS) for form in (piece, f"\n{piece}")] + list(SPACES)
"""Texts that hold each word and mark with and without a space before it."""

any_text = st.text(st.characters(codec="utf-8", exclude_characters=SPECIAL), max_size=30)
letters = st.text(st.characters(categories=("Lu", "Ll"), max_codepoint=0x17F), min_size=1)


@st.composite
def text_of_known_words(draw: st.DrawFn) -> str:
    """Words, marks and spaces in any order; two words never touch, as they would be another."""
    parts: list[str] = []
    for part in draw(st.lists(st.sampled_from((*WORDS, *MARKS, *SPACES)), max_size=12)):
        if parts and part in WORDS and parts[-1] in WORDS:
            parts.append(draw(st.sampled_from((*MARKS, *SPACES))))
        parts.append(part)
    return "".join(parts)


@pytest.fixture(scope="module")
def words() -> Pieces:
    return Pieces.train_words(KNOWN)


@pytest.fixture(scope="module")
def byte_pairs() -> Pieces:
    return Pieces.train_byte_pairs(KNOWN * 3, 400)


def assert_round_trip(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(MASK < i < tokenizer.size for i in ids)


@given(any_text, st.data())
def test_characters_come_back(known: str, data: st.DataObject) -> None:
    characters = st.sampled_from(known) if known else st.nothing()
    text = data.draw(st.text(characters) if known else st.just(""))
    assert_round_trip(Characters.train([known]), text)


@given(text=text_of_known_words())
def test_known_words_come_back_in_any_order_and_spacing(words: Pieces, text: str) -> None:
    assert_round_trip(words, text)


@given(any_text)
def test_words_of_any_text_come_back(text: str) -> None:
    assert_round_trip(Pieces.train_words([text]), text)


@given(text=any_text)
def test_byte_pairs_write_any_text(byte_pairs: Pieces, text: str) -> None:
    assert_round_trip(byte_pairs, text)


@given(text=text_of_known_words())
def test_byte_pairs_write_the_words_that_they_were_trained_on(
    byte_pairs: Pieces, text: str
) -> None:
    assert_round_trip(byte_pairs, text)


def by_word(tokenizer: Tokenizer, text: str) -> list[str]:
    """What the tokens of each word say together."""
    ids, words = tokenizer.encode_words(text)
    assert ids == tokenizer.encode(text)
    numbers = [word for word in words if word >= 0]
    assert numbers == sorted(numbers)
    return [
        tokenizer.decode([i for i, of in zip(ids, words, strict=True) if of == number]).strip()
        for number in range(max(numbers, default=-1) + 1)
    ]


@given(text=text_of_known_words())
def test_the_tokens_of_each_word_say_it(words: Pieces, byte_pairs: Pieces, text: str) -> None:
    for tokenizer in (words, byte_pairs, Characters.train([text])):
        assert by_word(tokenizer, text) == text.split()


@given(
    text=st.text(
        st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Cs", "Co", "Cn")), max_size=30
    )
)
def test_byte_pairs_know_the_words_of_any_text(byte_pairs: Pieces, text: str) -> None:
    assume(not set(text) & set(SPECIAL))
    assert by_word(byte_pairs, text) == text.split()


def test_spaces_are_of_the_word_behind_them_or_of_none() -> None:
    assert Characters.train(["ab "]).encode_words(" a  b ")[1] == [0, 0, 1, 1, 1, -1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_begins_the_second_of_two_texts(kind: str) -> None:
    tokenizer = train_tokenizer(KINDS[kind], ["Ada was", "was"])
    one, other = tokenizer.encode("Ada was"), tokenizer.encode("was")
    ids, parts = tokenizer.encode_pair("Ada was", "was")
    assert ids == [*one, MASK, *other]
    assert parts == [0] * len(one) + [1] * (1 + len(other))


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_no_token(kind: str) -> None:
    tokenizer = train_tokenizer(KINDS[kind], ["Ada"])
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""


@given(first=letters, second=letters)
def test_byte_pairs_read_a_word_alike_at_the_start_and_in_the_middle(
    byte_pairs: Pieces, first: str, second: str
) -> None:
    both = byte_pairs.encode(first) + byte_pairs.encode(second)
    assert byte_pairs.encode(f"{first} {second}") == both


@given(letters, letters)
def test_a_word_is_one_token_at_the_start_and_in_the_middle(first: str, second: str) -> None:
    tokenizer = Pieces.train_words([f"{first} {second}"])
    (at_the_start,) = tokenizer.encode(second)
    in_the_middle = tokenizer.encode(f"{first} {second}")
    assert in_the_middle == [*tokenizer.encode(first), at_the_start]


@given(st.lists(any_text))
def test_characters_are_the_special_tokens_and_then_sorted(texts: list[str]) -> None:
    tokenizer = Characters.train(texts)
    assert tokenizer.decode(range(tokenizer.size)) == SPECIAL + "".join(sorted(set("".join(texts))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("corpus", [["Ada x"], ["Ada⁇x", "Ada ⁇ □ x", "□"]])
def test_padding_and_mask_come_first_whatever_the_corpus(kind: str, corpus: list[str]) -> None:
    tokenizer = train_tokenizer(KINDS[kind], corpus)
    (ada,) = {tokenizer.encode("Ada")[-1]}
    assert tokenizer.decode([PAD, MASK, ada, MASK]).startswith("□⁇")
    assert tokenizer.decode([ada, MASK]).endswith("⁇")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "corpus", [["Ada x", ",Ada,x"], ["Ada⁇x", "Ada□x", "Ada ⁇ x", "Ada □ x", "⁇Ada", "□Ada"]]
)
@pytest.mark.parametrize("text", ["Ada{}x", "Ada {} x", "{}", "{}Ada", "Ada x{}", "Ada x {}"])
@pytest.mark.parametrize("special", SPECIAL)
def test_special_tokens_in_a_text_are_refused(
    kind: str, corpus: list[str], text: str, special: str
) -> None:
    tokenizer = train_tokenizer(KINDS[kind], corpus)
    with pytest.raises(OutOfVocabularyError, match=f"{special}"):
        tokenizer.encode(text.format(special))


@given(any_text.filter(bool), any_text)
def test_an_unknown_character_is_named(known: str, text: str) -> None:
    unknown = next((character for character in text if character not in known), None)
    assume(unknown is not None)
    with pytest.raises(OutOfVocabularyError) as refused:
        Characters.train([known]).encode(text)
    assert str(refused.value) == f"the vocabulary has no {unknown!r}"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Zoe", "Zoe"),
        ("Zoe was born", "Zoe"),
        ("Ada Zoe was born", "Zoe"),
        ("Ada was Zoe", "Zoe"),
        ("Ada, Zoe", "Zoe"),
        ("(Zoe)", "Zoe"),
        ("Ada,Zoe", "Zoe"),
        ("Ada\nZoe", "Zoe"),
        ("naïve 語 Zoë was", "Zoë"),
        ("Ada!", "!"),
        ("Ada !", "!"),
        ("Ada ✓ was", "✓"),
    ],
)
def test_an_unknown_word_is_named(words: Pieces, text: str, word: str) -> None:
    with pytest.raises(OutOfVocabularyError, match="has no word") as refused:
        words.encode(text)
    assert str(refused.value) == f"the vocabulary has no word {word!r}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a cat , a dog", "',' with a space before it, but one without"),
        ("(cat", "'cat' without a space before it, but one with"),
    ],
)
def test_a_word_that_is_known_in_another_place_is_named_with_it(text: str, told: str) -> None:
    words = Pieces.train_words(["a cat, (a dog"])
    with pytest.raises(OutOfVocabularyError) as refused:
        words.encode(text)
    assert str(refused.value) == f"the vocabulary has no word {told}"


@pytest.mark.parametrize("space", ["\t", "\n", "\u3000"])
def test_an_unknown_space_is_named(space: str) -> None:
    tokenizer = Pieces.train_words(["Ada was", "\nwas"])
    if space == "\n":
        tokenizer = Pieces.train_words(["Ada was", "\twas"])
    with pytest.raises(OutOfVocabularyError) as refused:
        tokenizer.encode(f"Ada{space}was")
    assert repr(space) in str(refused.value)


def test_bytes_that_are_no_text_are_refused(byte_pairs: Pieces) -> None:
    from_a_command_line = b"Ada \xff".decode("utf-8", "surrogateescape")
    with pytest.raises(UserError):
        byte_pairs.encode(from_a_command_line)


@pytest.mark.parametrize("kind", KINDS)
@given(text=text_of_known_words())
def test_json_brings_the_same_tokenizer_back(kind: str, text: str) -> None:
    tokenizer = train_tokenizer(KINDS[kind], KNOWN)
    again = tokenizer_from_json(tokenizer.to_json())
    assert again.to_json() == tokenizer.to_json()
    assert again.fingerprint == tokenizer.fingerprint
    assert (again.kind, again.size) == (kind, tokenizer.size)
    assert again.encode(text) == tokenizer.encode(text)
    assert again.decode(again.encode(text)) == text


@given(any_text, any_text)
def test_fingerprints_tell_characters_apart(one: str, other: str) -> None:
    prints = [Characters.train([text]).fingerprint for text in (one, other)]
    assert (prints[0] == prints[1]) == (set(one) == set(other))


def test_fingerprints_tell_all_else_apart() -> None:
    tokenizers = [
        Characters.train(["Ada was"]),
        Pieces.train_words(["Ada was"]),
        Pieces.train_words(["Ada was was"]),  # the same words, other ids
        Pieces.train_words(["Ada is"]),
        Pieces.train_byte_pairs(["Ada was was was"], 300),
        Pieces.train_byte_pairs(["Ada was"], 300),
    ]
    assert len({tokenizer.fingerprint for tokenizer in tokenizers}) == len(tokenizers)


def test_the_commonest_words_have_the_lowest_ids() -> None:
    tokenizer = Pieces.train_words(["b a c", "c a", "c"])
    assert [tokenizer.encode(word) for word in "cab"] == sorted(map(tokenizer.encode, "cab"))


@given(
    st.lists(any_text, max_size=4).flatmap(lambda ts: st.tuples(st.just(ts), st.permutations(ts)))
)
def test_the_order_of_the_texts_does_not_matter(texts: tuple[list[str], list[str]]) -> None:
    for train in (Characters.train, Pieces.train_words):
        one, other = map(train, texts)
        assert one.to_json() == other.to_json()


TRAIN_ALL = """
from regard.tasks.world import WorldConfig, make_world
from regard.text.config import BytePairsConfig, CharactersConfig, WordsConfig
from regard.text.tokenizer import train_tokenizer
texts = make_world(WorldConfig(people=80, absent=0, biographies=2)).documents
for config in (CharactersConfig(), WordsConfig(), BytePairsConfig(size=500)):
    print(train_tokenizer(config, texts).fingerprint)
"""


def test_training_is_the_same_in_every_process() -> None:
    texts = make_world(WorldConfig(people=80, absent=0, biographies=2)).documents
    configs = (CharactersConfig(), WordsConfig(), BytePairsConfig(size=500))
    here = [train_tokenizer(config, texts).fingerprint for config in configs]
    for seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", TRAIN_ALL],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.split() == here


def test_byte_pairs_are_as_many_as_asked_for() -> None:
    texts = make_world(WorldConfig(people=80, absent=0, biographies=2)).documents
    assert train_tokenizer(BytePairsConfig(size=500), texts).size == 500


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"kind": "words"}', "no JSON"])
def test_what_is_no_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (any of its kinds)
        tokenizer_from_json(text)


def test_a_tokenizer_that_comes_with_a_model_is_not_trained() -> None:
    with pytest.raises(UserError, match="give --tokenizer RUN"):
        train_tokenizer(HuggingFaceConfig(), ["Ada"])


def test_a_document_that_cannot_be_encoded_is_named_by_its_place() -> None:
    documents = [Document("abba", "a.txt:1"), Document("abc", "a.txt:7")]
    with pytest.raises(OutOfVocabularyError, match=r"^a\.txt:7: the vocabulary has no 'c'"):
        encode_documents(Characters.train(["ab"]), documents)


def test_documents_are_encoded_in_their_order() -> None:
    tokenizer = Characters.train(["ab"])
    texts: Sequence[str] = ["a", "", "ba"]
    encoded = encode_documents(tokenizer, [Document(text, "here") for text in texts])
    assert [tokenizer.decode(ids) for ids in encoded] == texts


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_of_a_kind_is_named_like_its_tokenizer(kind: str) -> None:
    config = json.loads(train_tokenizer(KINDS[kind], ["Ada"]).to_json())["kind"]
    assert config == kind == type(KINDS[kind]).__struct_config__.tag


@pytest.mark.parametrize("n", [1, 2, 10, 300])
def test_a_number_is_a_token_at_its_own_distance_from_0(n: int) -> None:
    tokenizer = numbers(n)
    (first,) = tokenizer.encode("0")
    assert [tokenizer.encode(str(i)) for i in range(n)] == [[first + i] for i in range(n)]
    assert tokenizer.size == first + n
    with pytest.raises(OutOfVocabularyError, match=f"no word '{n}'"):
        tokenizer.encode(str(n))


@given(st.lists(st.integers(0, 29), max_size=20))
def test_numbers_come_back(row: list[int]) -> None:
    tokenizer = numbers(30)
    (first,) = tokenizer.encode("0")
    assert tokenizer.encode(" ".join(map(str, row))) == [first + i for i in row]
    assert tokenizer.decode([first + i for i in row]) == " ".join(map(str, row))


def test_words_have_ids_in_the_order_they_are_given_in() -> None:
    tokenizer = Pieces.of_words([" is", " Ada", ".", " ."])
    (first,) = tokenizer.encode("is")
    assert tokenizer.encode("Ada is. .") == [first + 1, first, first + 2, first + 3]
    assert tokenizer.decode([first + 1, first, first + 2, first + 3]) == "Ada is. ."
    assert tokenizer_from_json(tokenizer.to_json()).fingerprint == tokenizer.fingerprint
