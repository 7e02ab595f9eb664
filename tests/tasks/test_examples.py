"""Questions are read as they stand, or refused by file and line."""

import gzip
import json
import re
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.tasks.examples import (
    Example,
    answered_examples,
    encode_pairs,
    encode_questions,
    majority_answer,
    read_answered,
    read_history,
    read_questions,
    subjects,
)
from regard.text.config import CharactersConfig
from regard.text.template import Template, TemplateConfig
from regard.text.tokenizer import train_tokenizer
from tiny import MASK

ABC = train_tokenizer(CharactersConfig(), ["abc"])
BARE = Template(TemplateConfig(prompt="{question}"), ABC)
"""Nothing begins a prompt."""

one_line = (
    st.text(st.characters(codec="utf-8", exclude_characters="\0\t\r\n\ufeff"), max_size=20)
    .map(str.strip)
    .filter(bool)
)
some_pairs = st.lists(st.tuples(one_line, one_line), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for many examples of one property."""
    return tmp_path_factory.mktemp("questions")


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@given(pairs=some_pairs, end=st.sampled_from(["\n", "\r\n", "\n\n"]), mark=st.booleans())
def test_tsv_holds_questions_and_answers(
    place: Path, pairs: list[tuple[str, str]], end: str, mark: bool
) -> None:
    lines = [f"{question}\t{answer}" for question, answer in pairs]
    path = write(place / "a.tsv", "\ufeff" * mark + "".join(line + end for line in lines))
    step = end.count("\n")
    assert read_questions(path) == [
        Example(text=question, answer=answer, where=f"{path}:{1 + i * step}")
        for i, (question, answer) in enumerate(pairs)
    ]


@given(
    pairs=some_pairs,
    ascii_only=st.booleans(),
    fields=st.sampled_from(
        [("question", "answer"), ("article", "summary"), ("source", "target"), ("text", "label")]
    ),
)
def test_jsonl_names_its_fields_after_the_task(
    place: Path, fields: tuple[str, str], pairs: list[tuple[str, str]], ascii_only: bool
) -> None:
    records = [dict(zip(fields, pair, strict=True)) for pair in pairs]
    lines = [json.dumps(record, ensure_ascii=ascii_only) for record in records]
    path = write(place / "a.jsonl", "\n".join(lines))
    assert read_answered(path) == [
        Example(text=question, answer=answer, where=f"{path}:{i}")
        for i, (question, answer) in enumerate(pairs, start=1)
    ]
    path = write(place / "a.jsonl", "\n".join(json.dumps({fields[0]: text}) for text, _ in pairs))
    assert [(question.text, question.answer) for question in read_questions(path)] == [
        (text, None) for text, _ in pairs
    ]


@given(texts=st.lists(one_line, min_size=1, max_size=5))
def test_questions_may_have_no_answers(place: Path, texts: list[str]) -> None:
    tsv = write(place / "a.tsv", "\n".join(texts))
    jsonl = write(place / "a.jsonl", "\n".join(json.dumps({"question": text}) for text in texts))
    for path in (tsv, jsonl):
        read = read_questions(path)
        assert [(question.text, question.answer) for question in read] == [
            (text, None) for text in texts
        ]
        with pytest.raises(UserError) as refused:
            read_answered(path)
        assert str(refused.value).startswith(f"{path}:1: has no answer")


def test_examples_in_memory_need_answers() -> None:
    answered, other = Example(text="Who?", answer="Ada"), Example(text="Where?")
    assert answered_examples([answered]) == [answered]
    with pytest.raises(UserError, match=r"'Where\?': has no answer"):
        answered_examples([answered, other])


def test_an_example_in_memory_is_named_by_its_text() -> None:
    for text, says in [("a?", "'a?': the vocabulary"), ("ab" * 30, f"'{'ab' * 20}': the qu")]:
        with pytest.raises(UserError, match=f"^{re.escape(says)}"):
            encode_questions(BARE, [Example(text=text)], 32)


@pytest.mark.parametrize("name", ["a.ndjson", "a.JSONL", "a.jsonl.gz", "a.tsv.gz"])
def test_the_suffix_of_the_content_is_the_format(name: str, tmp_path: Path) -> None:
    line = b"Who?\tAda" if "tsv" in name else b'{"question": "Who?", "answer": "Ada"}'
    path = tmp_path / name
    path.write_bytes(gzip.compress(line) if name.endswith(".gz") else line)
    assert read_answered(path) == [Example(text="Who?", answer="Ada", where=f"{path}:1")]


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    for name, text, line, says in [
        ("a.tsv", "Who?\tAda\nWho \n", 2, "has no answer"),
        ("a.tsv", "Who?\nWho?\tAda\n", 1, "has no answer"),
        ("a.tsv", "Who?\tAda\r\n\r\nWho Ada\r\n", 3, "has no answer"),
        ("a.tsv", "Who?\tAda\nWho?\tAda\tBob\n", 2, "has 2 tabs"),
        ("a.tsv", "Who?\tAda\n\tAda\n", 2, "the question is empty"),
        ("a.tsv", "Who?\t\n", 1, "the answer is empty"),
        ("a.tsv", " \u00a0\tAda\n", 1, "the question is empty"),
        ("a.jsonl", '{"question": "Who?", "answer": "Ada"}\n{"question": "Who?"}', 2, "no answer"),
        ("a.jsonl", '\n{"question": "Who?"', 2, "expected"),
        ("a.jsonl", '{"question": "Who?", "answers": ["Ada"]}', 1, "answers"),
        ("a.jsonl", '{"question": 3}', 1, "expected"),
        ("a.json", '[{"question": "Who?"}]', 1, "expected"),
        ("a.jsonl", '{"article": "Long.", "answer": "Short."}', 1, "answer"),
        ("a.jsonl", '{"text": "Fine.", "label": "good", "question": "?"}', 1, "question"),
        ("a.jsonl", '{"summary": "Short."}', 1, "summary"),
        ("a.jsonl", '{"question": " "}', 1, "empty"),
        ("a.jsonl", '{"question": "Who?", "answer": " "}', 1, "empty"),
    ]:
        path = write(tmp_path / name, text)
        with pytest.raises(UserError) as refused:
            read_questions(path)
        assert str(refused.value).startswith(f"{path}:{line}: ")
        assert says in str(refused.value)
        assert "\n" not in str(refused.value)


@given(st.lists(st.sampled_from("abcd"), min_size=1), st.integers(0, 3))
def test_the_majority_is_the_commonest_and_then_the_first_in_the_alphabet(
    answers: list[str], unanswered: int
) -> None:
    questions = [Example(text="?", answer=answer) for answer in answers]
    questions += [Example(text="?")] * unanswered
    most = max(Counter(answers).values())
    assert majority_answer(questions) == min(a for a in answers if answers.count(a) == most)


words = st.text(st.characters(categories=["Lu", "Ll"]), min_size=1, max_size=6)


@given(
    st.lists(st.lists(words, min_size=1, max_size=3), min_size=2, max_size=5),
    st.lists(words, max_size=3),
    st.lists(words, max_size=2),
)
def test_subjects_are_what_differs(
    names: list[list[str]], before: list[str], after: list[str]
) -> None:
    # Numbered, so that no two names share their first or last word.
    unlike = [[f"{i}{word}" for word in name] for i, name in enumerate(names)]
    texts = [" ".join(["ask", *before, *name, *after]) for name in unlike]
    assert subjects(texts) == [" ".join(name) for name in unlike]


repetitive = st.text("ab ", min_size=1, max_size=8).map(str.strip).filter(bool)


@example(["a b", "a b b"])
@given(st.lists(one_line | repetitive, min_size=1, max_size=5))
def test_every_question_has_a_subject_that_stands_in_it(texts: list[str]) -> None:
    found = subjects(texts)
    if not found:  # nothing tells what they are about
        return
    assert len(found) == len(texts)
    for text, subject in zip(texts, found, strict=True):
        assert subject
        assert subject == subject.strip()
        assert subject in text


def test_subjects_by_example() -> None:
    for texts, expected in [
        (["Where was Ada born?"], []),
        (["Where was Ada born?"] * 2, []),
        (["Where was Ada born?", "Where was Otto Lange born?"], ["Ada", "Otto Lange"]),
        (["Where is Rome?", "Who wrote Emma?"], []),
        (["Ada Finch", "Ada Lange"], ["Finch", "Lange"]),
        (["Ada", "Ada Ada"], []),
    ]:
        assert subjects(texts) == expected


@given(st.integers(1, 12), st.integers(1, 12), st.integers(4, 24))
def test_a_pair_is_taken_exactly_where_nothing_of_it_is_cut_off(
    n_question: int, n_answer: int, block: int
) -> None:
    question = Example(text="a" * n_question, answer="b" * n_answer, where="pairs.tsv:7")
    if n_question + 1 + n_answer + 1 <= block + 1:
        found = encode_pairs(BARE, [question], block)
        assert found == [([2] * n_question, [MASK, *[3] * n_answer, MASK])]
    else:
        with pytest.raises(UserError, match=r"^pairs\.tsv:7: .*context length is"):
            encode_pairs(BARE, [question], block)


@given(st.integers(1, 12), st.integers(2, 14))
def test_a_question_is_taken_where_an_answer_still_fits(n: int, block: int) -> None:
    question = Example(text="a" * n, where="pairs.tsv:7")
    if n + len("⁇b") <= block:
        assert encode_questions(BARE, [question], block) == [[2] * n]
    else:
        with pytest.raises(UserError, match=rf"^pairs\.tsv:7: .*context length is {block}"):
            encode_questions(BARE, [question], block)


def test_what_cannot_be_encoded_is_named_by_its_line() -> None:
    good = Example(text="a", answer="b", where="pairs.tsv:1")
    for bad in (
        Example(text="d", answer="b", where="2"),
        Example(text="a", answer="d", where="2"),
    ):
        with pytest.raises(UserError, match=r"^2: the vocabulary has no 'd'"):
            encode_pairs(BARE, [good, bad], 32)


def as_messages(turns: list[tuple[str, str]]) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [
        {"role": roles[i % 2], "content": text} for i, text in enumerate(chain.from_iterable(turns))
    ]


@given(turns=some_pairs, last=st.booleans())
def test_turns_and_messages_are_the_same_conversation(
    place: Path, turns: list[tuple[str, str]], last: bool
) -> None:
    fields = [{"question": question, "answer": answer} for question, answer in turns]
    messages = as_messages(turns)
    if not last:
        del fields[-1]["answer"], messages[-1]
    (question, answer) = turns[-1]
    for record in ({"turns": fields}, {"messages": messages, "id": 7}):
        path = write(place / "chats.jsonl", json.dumps(record))
        assert read_questions(path) == [
            Example(
                text=question,
                answer=answer if last else None,
                turns=tuple(turns[:-1]),
                where=f"{path}:1",
            )
        ]
        if last:
            assert read_history(path) == tuple(turns)


def test_a_system_message_comes_before_the_first_question(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *as_messages([("a", "b"), ("c", "d")])]
    path = write(tmp_path / "chats.jsonl", json.dumps({"messages": messages}))
    (example,) = read_answered(path)
    assert example.turns == (("Be brief.\n\na", "b"),)
    assert (example.text, example.answer) == ("c", "d")


def test_a_malformed_conversation_is_named_by_its_line(tmp_path: Path) -> None:
    for record, error in [
        ({"turns": []}, "empty or missing"),
        ({"turns": [{"question": "a"}, {"question": "b", "answer": "c"}]}, "empty or missing"),
        ({"turns": [{"question": " ", "answer": "c"}]}, "empty or missing"),
        ({"turns": [{"prompt": "a"}]}, "unknown field"),
        ({"turns": "a"}, "expected"),
        ({"messages": []}, "empty or missing"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "message 1 is by assistant"),
        ({"messages": [{"role": "user", "content": "a"}] * 2}, "message 2 is by user"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "Invalid enum value 'tool'"),
    ]:
        path = write(tmp_path / "chats.jsonl", json.dumps(record))
        with pytest.raises(UserError, match=rf"chats\.jsonl:1: .*{error}"):
            read_questions(path)


short = st.text("abc", min_size=1, max_size=4)


@given(turns=st.lists(st.tuples(short, short), min_size=1, max_size=4))
def test_a_conversation_is_its_turns_one_after_the_other(turns: list[tuple[str, str]]) -> None:
    *earlier, (question, answer) = turns
    example = Example(text=question, answer=answer, turns=tuple(earlier))
    alone = [Example(text=q, answer=a) for q, a in turns]
    (pair,) = encode_pairs(BARE, [example], 99)
    assert pair == tuple(chain(*encode_pairs(BARE, alone, 99)))
    asked = list(chain(*pair[:-1]))
    assert encode_questions(BARE, [example], 99) == [asked]
    after = BARE.with_history(earlier)
    assert encode_questions(after, [Example(text=question)], 99) == [asked]
    assert encode_questions(BARE, [Example(text=question)], 99) == [pair[-2]]  # not changed
    longest = sum(map(len, pair)) - 1
    with pytest.raises(UserError, match="context length is"):
        encode_pairs(BARE, [example], longest - 1)


@pytest.mark.parametrize("n", range(4))
def test_a_history_grows_turn_by_turn(n: int) -> None:
    turns = [("a", "b"), ("c", "a"), ("b", "b")]
    question = Example(text="c", where="")
    whole = encode_questions(BARE.with_history(turns), [question], 99)
    grown = BARE.with_history(turns[:n]).with_history(turns[n:])
    assert encode_questions(grown, [question], 99) == whole
    begun = BARE.with_history(turns[:n])
    rest = Example(text="c", turns=tuple(turns[n:]), where="")
    assert encode_questions(begun, [rest], 99) == whole
