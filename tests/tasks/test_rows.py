"""Rows of a user's file: bad ones are refused or left out, and a share is held out."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.runs.run import Run
from regard.tasks.casing import CasingConfig, case_pairs
from regard.tasks.classification import ClassificationConfig
from regard.tasks.entailment import EntailmentConfig
from regard.tasks.examples import Example
from regard.tasks.registry import read_rows
from regard.tasks.retrieval import RetrievalConfig
from regard.tasks.rows import count_duplicates, load_rows, pack_rows, split_rows
from regard.tasks.split import TextTaskConfig
from regard.tasks.summaries import SummariesConfig
from regard.tasks.tables import TableConfig
from regard.tasks.tagging import TaggingConfig
from regard.tasks.translation import TranslationConfig
from regard.text.corpus import Document
from regard.uncertainty.calibration import require_untrained

LABELED = (ClassificationConfig(), EntailmentConfig())
OTHERS = (
    CasingConfig(),
    SummariesConfig(),
    TranslationConfig(),
    TaggingConfig(),
    RetrievalConfig(),
)
SKIPPING = TableConfig(skip_bad=True)


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def row_of(task: TextTaskConfig, i: int) -> list[str]:
    """Return the cells of a row that is an example of a task."""
    second = [f"second {i}"] if isinstance(task, EntailmentConfig) else []
    return [f"text {i}", *second, f"answer {i % 2}"]


@pytest.mark.parametrize("task", [*LABELED, *OTHERS], ids=lambda task: type(task).__name__)
@pytest.mark.parametrize("header", [False, True])
def test_a_bad_row_stops_or_is_left_out(tmp_path: Path, task: TextTaskConfig, header: bool) -> None:
    rows = [row_of(task, i) for i in range(4)]
    rows.insert(2, ["alone"])
    if header:
        rows.insert(0, ["text", *(["second"] * (len(rows[0]) - 2)), "label"])
    path = write(tmp_path / "a.tsv", "".join("\t".join(row) + "\n" for row in rows))
    with pytest.raises(UserError) as refused:
        read_rows(task, path, TableConfig())
    assert str(refused.value).startswith(f"{path}:{3 + header}: ")
    assert str(refused.value).endswith("; fix it, or leave such rows out with --skip-bad")
    read = read_rows(task, path, SKIPPING)
    assert [example.text for example in read.examples] == [f"text {i}" for i in range(4)]
    assert len(read.bad) == 1


def test_a_row_of_another_task_is_bad(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a b\tX Y\nc\tX Y\n\nd\n")
    with pytest.raises(UserError, match=r"a\.tsv:4: has no answer.* \(2 such rows\)"):
        read_rows(TaggingConfig(), path, TableConfig())
    assert [one.text for one in read_rows(TaggingConfig(), path, SKIPPING).examples] == ["a b"]
    mixed = write(tmp_path / "b.tsv", "a\tb\tx\na\tx\n")
    read = read_rows(ClassificationConfig(), mixed, SKIPPING)
    assert [(one.second, one.answer) for one in read.examples] == [("b", "x")]


def test_without_a_good_row_the_first_error_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "alone\t\n")
    with pytest.raises(UserError, match=r"has no good row; .*; the first: .*a\.tsv:1: the answer"):
        read_rows(CasingConfig(), path, SKIPPING)


# Held-out rows

answers = st.lists(st.sampled_from("aabbbcd"), min_size=1, max_size=200)


@given(answers=answers, share=st.sampled_from([0.0, 0.1, 0.5]), seed=st.integers(0, 5))
def test_each_label_gives_its_share(answers: list[str], share: float, seed: int) -> None:
    rows = [Example(text=str(i), answer=answer) for i, answer in enumerate(answers)]
    for task in LABELED:
        training, test = split_rows(rows, share, seed, task.stratum)
        assert sorted((*training, *test), key=lambda row: int(row.text)) == rows
        assert {row.answer for row in training} == set(answers)
        assert (training, test) == split_rows(rows, share, seed, task.stratum)
        counts = Counter(row.answer for row in test)
        for label, n in Counter(answers).items():
            assert abs(counts[label] - share * n) <= 2


@given(n=st.integers(1, 200), share=st.sampled_from([0.0, 0.1, 0.5]), seed=st.integers(0, 5))
def test_without_labels_a_share_of_all_rows_is_held_out(n: int, share: float, seed: int) -> None:
    rows = [Example(text=str(i), answer=str(i)) for i in range(n)]
    for task in OTHERS:
        training, test = split_rows(rows, share, seed, task.stratum)
        assert len(test) == int(share * n + 1e-9)
        assert sorted((*training, *test), key=lambda row: int(row.text)) == rows
        assert (training, test) == split_rows(rows, share, seed, task.stratum)


def test_the_seed_draws_the_rows() -> None:
    rows = [Example(text=str(i), answer="a") for i in range(100)]
    first, second = (split_rows(rows, 0.1, seed, CasingConfig().stratum)[1] for seed in (0, 1))
    assert first != second


def test_rare_labels_share_what_none_fills_alone() -> None:
    rows = [Example(text=str(i), answer=str(i // 2)) for i in range(20_000)]
    training, test = split_rows(rows, 0.1, 0, ClassificationConfig().stratum)
    assert len(test) == 2000
    assert len({row.answer for row in training}) == 10_000


def test_rows_are_saved_and_loaded(tmp_path: Path) -> None:
    texts = ("the food, was good", 'a "bad"; day', "line\nend | □ ⁇ 😀")
    rows = [Example(text=text, answer="5", where=f"a.csv:{i}") for i, text in enumerate(texts)]
    assert load_rows(tmp_path) is None
    (tmp_path / "test.jsonl").write_bytes(pack_rows(rows))
    assert load_rows(tmp_path) == rows
    write(tmp_path / "test.jsonl", "{")
    with pytest.raises(UserError, match="is damaged"):
        load_rows(tmp_path)


def test_both_cases_of_a_line_stay_together() -> None:
    rows = case_pairs([Document(f"text {i}", f"my.txt:{i}") for i in range(1, 101)])
    training, test = split_rows(rows, 0.1, 0, CasingConfig().stratum)
    assert len(test) == 20
    assert not {row.where for row in training} & {row.where for row in test}


def test_earlier_turns_are_in_training() -> None:
    born = "Where was Ada Finch born?"
    chat = Example(text="And where?", answer="b", turns=((born, "Rome"),), where="chats:1")
    other = Example(text="And where?", answer="b", turns=(("Who is Bob?", "x"),))
    assert count_duplicates([chat], [Example(text=born), chat]) == 2
    assert count_duplicates([chat], [other]) == 0
    run = cast(Run, SimpleNamespace(path="run"))
    with pytest.raises(UserError, match="chats:1 trained"):
        require_untrained(run, [Example(text=born, answer="Rome")], [chat])
