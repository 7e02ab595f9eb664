"""Text becomes ids and comes back unchanged; what can't is refused by name."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.runs.recipes import COURSE_TOKENS
from regard.tasks.probes import number_tokenizer
from regard.tasks.world import WorldConfig, make_world
from regard.text.config import (
    BytePairsConfig,
    CharactersConfig,
    HuggingFaceConfig,
    SpecialTokensConfig,
    TokenizerConfig,
    WordsConfig,
)
from regard.text.corpus import Document
from regard.text.tokenizer import (
    FILES,
    OutOfVocabularyError,
    SpecialTokens,
    Tokenizer,
    encode_documents,
    train_tokenizer,
    word_tokenizer,
)
from tiny import MASK, PAD

# Names of one character, as ordinary text may have them too.
KINDS: dict[str, TokenizerConfig] = {
    "characters": CharactersConfig(special_tokens=COURSE_TOKENS),
    "words": WordsConfig(special_tokens=COURSE_TOKENS),
    "byte-pairs": BytePairsConfig(size=300, special_tokens=COURSE_TOKENS),
}
WORDS = ("Ada", "Finch", "was", "born", "naïve", "Łódź", "e\u0301te\u0301", "語", "x1", "_", "don")
MARKS = (".", ",", "?", "(", ")", "'", "—", "¿", "✈", "€")
SPACES = (" ", "  ", "   ", "\n", "\n\n", "\t", " \n ", "\u00a0", "\u3000", "\r\n")
KNOWN = [form for piece in (*WORDS, *MARKS) for form in (piece, f"\n{piece}")] + list(SPACES)
"""Texts that hold each word and mark with and without a space before it."""

any_text = st.text(st.characters(codec="utf-8") | st.sampled_from("□⁇"), max_size=30)
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
def words() -> Tokenizer:
    return train_tokenizer(WordsConfig(), KNOWN)


@pytest.fixture(scope="module")
def byte_pairs() -> Tokenizer:
    return train_tokenizer(BytePairsConfig(size=400), KNOWN * 3)


def assert_round_trip(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert set(ids) <= set(tokenizer.regular_ids)
    assert not set(tokenizer.regular_ids) & tokenizer.special.ids


@given(any_text, st.data())
def test_characters_come_back(known: str, data: st.DataObject) -> None:
    characters = st.sampled_from(known) if known else st.nothing()
    text = data.draw(st.text(characters) if known else st.just(""))
    assert_round_trip(train_tokenizer(CharactersConfig(), [known]), text)


@given(text=text_of_known_words())
def test_known_words_come_back_in_any_order_and_spacing(words: Tokenizer, text: str) -> None:
    assert_round_trip(words, text)


@given(any_text)
def test_words_of_any_text_come_back(text: str) -> None:
    assert_round_trip(train_tokenizer(WordsConfig(), [text]), text)


@given(text=any_text)
def test_byte_pairs_write_any_text(byte_pairs: Tokenizer, text: str) -> None:
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
def test_the_tokens_of_each_word_say_it(words: Tokenizer, byte_pairs: Tokenizer, text: str) -> None:
    for tokenizer in (words, byte_pairs, train_tokenizer(CharactersConfig(), [text])):
        assert by_word(tokenizer, text) == text.split()


@given(
    text=st.text(
        st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Cs", "Co", "Cn")), max_size=30
    )
)
def test_byte_pairs_know_the_words_of_any_text(byte_pairs: Tokenizer, text: str) -> None:
    assert by_word(byte_pairs, text) == text.split()


def test_spaces_are_of_the_word_behind_them_or_of_none() -> None:
    _, words = train_tokenizer(CharactersConfig(), ["ab "]).encode_words(" a  b ")
    assert words == [0, 0, 1, 1, 1, -1]


@given(first=letters, second=letters)
def test_byte_pairs_read_a_word_alike_at_the_start_and_in_the_middle(
    byte_pairs: Tokenizer, first: str, second: str
) -> None:
    both = byte_pairs.encode(first) + byte_pairs.encode(second)
    assert byte_pairs.encode(f"{first} {second}") == both


@given(letters, letters)
def test_a_word_is_one_token_at_the_start_and_in_the_middle(first: str, second: str) -> None:
    tokenizer = train_tokenizer(WordsConfig(), [f"{first} {second}"])
    (at_the_start,) = tokenizer.encode(second)
    in_the_middle = tokenizer.encode(f"{first} {second}")
    assert in_the_middle == [*tokenizer.encode(first), at_the_start]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="□⁇"))))
def test_characters_are_the_special_tokens_and_then_sorted(texts: list[str]) -> None:
    tokenizer = train_tokenizer(CharactersConfig(), texts)
    assert tokenizer.decode(range(tokenizer.size)) == "<pad><sep>" + "".join(
        sorted(set("".join(texts)))
    )


ODD = ["Ada⁇x", "Ada ⁇ □ x", "□", "<unknown>", "<sep>", "<□>", "[MASK]", "<|endoftext|> <s>"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("corpus", [["Ada x"], ODD])
def test_special_tokens_come_first_whatever_the_corpus(kind: str, corpus: list[str]) -> None:
    special = train_tokenizer(KINDS[kind], corpus).special
    unk = MASK + 1 if kind == "words" else None
    expected = SpecialTokens(pad=PAD, bos=MASK, eos=MASK, sep=MASK, mask=MASK, unk=unk)
    assert special == expected
    assert (special.stop_ids, special.decoder_start_id) == ((MASK,), MASK)


def test_text_that_spells_a_special_token_is_ordinary_text() -> None:
    for config, text in product(KINDS.values(), ODD):
        assert_round_trip(train_tokenizer(config, ODD), text)


def test_byte_pairs_do_not_merge_to_a_special_token() -> None:
    special = SpecialTokensConfig(sep="###")
    texts = ["Ada### Finch###"] * 9
    tokenizer = train_tokenizer(BytePairsConfig(size=320, special_tokens=special), texts)
    for text in ("Ada###", "Finch ### x", "x####"):
        assert_round_trip(tokenizer, text)


def test_the_name_of_a_special_token_is_unknown_text_if_the_corpus_lacks_it() -> None:
    for kind, special in product(["characters", "words"], ["□", "⁇"]):
        tokenizer = train_tokenizer(KINDS[kind], ["Ada x", ",Ada,x"])
        for text in ["Ada{}x", "{}", "{}Ada", "Ada x{}"]:
            with pytest.raises(OutOfVocabularyError, match=f"the vocabulary has no '{special}'"):
                tokenizer.encode(text.format(special))


@pytest.mark.parametrize(
    ("config", "written"),
    [
        (CharactersConfig(unknown="unk"), "A<unknown>a ⁇"),
        (WordsConfig(unknown="unk"), "<unknown> ⁇"),
        (CharactersConfig(unknown="unk", special_tokens=SpecialTokensConfig(unk="⁇")), "A<⁇>a ⁇"),
    ],
)
def test_unknown_text_becomes_the_unk_token_where_that_is_configured(
    config: TokenizerConfig, written: str, tmp_path: Path
) -> None:
    tokenizer = train_tokenizer(config, ["Ada ⁇"])
    ids = tokenizer.encode("Aéa ⁇")
    assert tokenizer.decode(ids) == written
    assert tokenizer.special.unk in ids
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).encode("Aéa ⁇") == ids


def test_roles_may_have_tokens_of_their_own() -> None:
    names = SpecialTokensConfig(pad="<p>", bos="<s>", eos="</s>", sep="<sep>", cls="<s>", mask="")
    tokenizer = train_tokenizer(CharactersConfig(special_tokens=names), ["<p>"])
    expected = SpecialTokens(pad=0, bos=1, eos=2, sep=3, cls=1)
    assert tokenizer.special == expected
    assert tokenizer.decode(range(4)) == "<p><s></s><sep>"
    assert_round_trip(tokenizer, "<p>")
    with pytest.raises(UserError, match="no mask token"):
        tokenizer.special.require("mask")


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_what_is_saved(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = train_tokenizer(KINDS[kind], ODD)
    tokenizer.save(tmp_path)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    special = tokenizer.special
    assert (theirs.pad_token_id, theirs.bos_token_id) == (special.pad, special.bos)
    assert (theirs.mask_token_id, theirs.unk_token_id) == (special.mask, special.unk)
    for text in ODD:
        found = theirs(text, add_special_tokens=False).input_ids
        assert found == tokenizer.encode(text)
        assert theirs.decode(found) == text


@given(any_text.filter(bool), any_text)
def test_an_unknown_character_is_named(known: str, text: str) -> None:
    unknown = next((character for character in text if character not in known), None)
    assume(unknown is not None)
    with pytest.raises(OutOfVocabularyError) as refused:
        train_tokenizer(CharactersConfig(), [known]).encode(text)
    assert str(refused.value) == f"the vocabulary has no {unknown!r}"


def test_an_unknown_word_is_named(words: Tokenizer) -> None:
    for text, word in [
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
    ]:
        with pytest.raises(OutOfVocabularyError, match="has no") as refused:
            words.encode(text)
        assert str(refused.value) == f"the vocabulary has no {word!r}"


def test_a_word_that_is_known_in_another_place_is_named_with_it() -> None:
    for text, told in [
        ("a cat , a dog", "',' with a space before it, but one without"),
        ("(cat", "'cat' without a space before it, but one with"),
    ]:
        words = train_tokenizer(WordsConfig(), ["a cat, (a dog"])
        with pytest.raises(OutOfVocabularyError) as refused:
            words.encode(text)
        assert str(refused.value) == f"the vocabulary has no {told}"


def test_unknown_parts_are_listed_in_their_order() -> None:
    cases: list[TokenizerConfig] = [
        CharactersConfig(unknown="bytes"),
        CharactersConfig(unknown="unk"),
        WordsConfig(unknown="unk"),
        BytePairsConfig(size=300),
    ]
    for config in cases:
        tokenizer = train_tokenizer(config, ["Ada was 0x41"])
        assert tokenizer.unknown_parts("Ada was 0x41") == []
        expected = [] if isinstance(config, BytePairsConfig) else ["é", "Ł"]
        assert tokenizer.unknown_parts("é Ada Ł") == expected


def test_an_unknown_space_is_named() -> None:
    for space in ["\t", "\n", "\u3000"]:
        tokenizer = train_tokenizer(WordsConfig(), ["Ada was", "\nwas"])
        if space == "\n":
            tokenizer = train_tokenizer(WordsConfig(), ["Ada was", "\twas"])
        with pytest.raises(OutOfVocabularyError) as refused:
            tokenizer.encode(f"Ada{space}was")
        assert repr(space) in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_same_again(kind: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(KINDS[kind], KNOWN)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    tokenizer.save(tmp_path / "one")
    again = Tokenizer.load(tmp_path / "one")
    again.save(tmp_path / "other")
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
    assert again.fingerprint == tokenizer.fingerprint
    assert (again.size, again.special) == (tokenizer.size, tokenizer.special)
    for text in KNOWN:
        assert again.encode(text) == tokenizer.encode(text)
        assert again.decode(again.encode(text)) == text


@given(any_text, any_text)
def test_fingerprints_tell_characters_apart(one: str, other: str) -> None:
    prints = [train_tokenizer(CharactersConfig(), [text]).fingerprint for text in (one, other)]
    assert (prints[0] == prints[1]) == (set(one) == set(other))


def test_fingerprints_tell_all_else_apart() -> None:
    tokenizers = [
        train_tokenizer(CharactersConfig(), ["Ada was"]),
        train_tokenizer(WordsConfig(), ["Ada was"]),
        train_tokenizer(WordsConfig(), ["Ada was was"]),  # the same words, other ids
        train_tokenizer(WordsConfig(), ["Ada is"]),
        train_tokenizer(BytePairsConfig(size=300), ["Ada was was was"]),
        train_tokenizer(BytePairsConfig(size=300), ["Ada was"]),
    ]
    assert len({tokenizer.fingerprint for tokenizer in tokenizers}) == len(tokenizers)


def test_the_commonest_words_have_the_lowest_ids() -> None:
    tokenizer = train_tokenizer(WordsConfig(), ["b a c", "c a", "c"])
    assert [tokenizer.encode(word) for word in "cab"] == sorted(map(tokenizer.encode, "cab"))


@given(
    st.lists(any_text, max_size=4).flatmap(lambda ts: st.tuples(st.just(ts), st.permutations(ts)))
)
def test_the_order_of_the_texts_does_not_matter(texts: tuple[list[str], list[str]]) -> None:
    for config in (CharactersConfig(), WordsConfig()):
        one, other = (train_tokenizer(config, order) for order in texts)
        assert one.fingerprint == other.fingerprint


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
    there = subprocess.run(
        [sys.executable, "-c", TRAIN_ALL],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.split() == here


def test_a_tokenizer_that_comes_with_a_model_is_not_trained() -> None:
    with pytest.raises(UserError, match="give --tokenizer RUN"):
        train_tokenizer(HuggingFaceConfig(), ["Ada"])


def test_a_document_that_cannot_be_encoded_is_named_by_its_place() -> None:
    documents = [Document("abba", "a.txt:1"), Document("abc", "a.txt:7")]
    says = r"^a\.txt:7: the vocabulary has no 'c'; it has 2 tokens, such as 'a', 'b'; remove it, "
    with pytest.raises(OutOfVocabularyError, match=says):
        encode_documents(train_tokenizer(CharactersConfig(), ["ab"]), documents)


def test_a_number_is_a_token_at_its_own_distance_from_0() -> None:
    for n in (1, 300):
        tokenizer = number_tokenizer(n)
        (first,) = tokenizer.encode("0")
        assert [tokenizer.encode(str(i)) for i in range(n)] == [[first + i] for i in range(n)]
        assert tokenizer.size == first + n
        with pytest.raises(OutOfVocabularyError, match=f"no '{n}'"):
            tokenizer.encode(str(n))


def test_words_have_ids_in_the_order_they_are_given_in() -> None:
    tokenizer = word_tokenizer([" is", " Ada", ".", " ."])
    (first,) = tokenizer.encode("is")
    assert tokenizer.encode("Ada is. .") == [first + 1, first, first + 2, first + 3]
    assert tokenizer.decode([first + 1, first, first + 2, first + 3]) == "Ada is. ."


# Special tokens


def test_roles_decide_where_texts_start_and_stop_and_what_pads() -> None:
    for special, stop_ids, start in (
        (SpecialTokens(), (), None),
        (SpecialTokens(bos=7, eos=9), (9,), 7),
        (SpecialTokens(cls=3, sep=5), (5,), 3),  # a BERT that generates
        (SpecialTokens(pad=0, eos=1), (1,), 0),  # T5
        (SpecialTokens(eos=1, stop_ids=(1, 4), decoder_start_id=8), (1, 4), 8),
    ):
        assert (special.stop_ids, special.decoder_start_id) == (stop_ids, start), special
    special = SpecialTokens(pad=0, bos=7, eos=7, stop_ids=(4,), decoder_start_id=8)
    assert special.ids == {0, 4, 7, 8}
    assert (SpecialTokens(pad=5).padding, SpecialTokens(eos=5).padding) == (5, 0)


def test_bytes_of_characters_are_different_tokens() -> None:
    tokenizer = train_tokenizer(BytePairsConfig(size=300), ["Ada was born in Rome"])
    ids = tokenizer.encode("東京と大阪")
    assert len(set(map(tokenizer.token_text, ids))) == len(set(ids)) == 16


@pytest.mark.parametrize("config", [CharactersConfig(), WordsConfig(), BytePairsConfig(size=300)])
def test_lone_surrogates_train_no_tokenizer(config: BytePairsConfig) -> None:
    with pytest.raises(UserError, match=r"the text isn't valid Unicode: 'a \\ud83d'"):
        train_tokenizer(config, ["a \ud83d b"])
