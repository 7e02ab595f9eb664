"""Columns of texts and labels are found by their cells."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.tasks.classification import ClassificationConfig
from regard.tasks.columns import find_columns
from regard.tasks.registry import read_rows
from regard.tasks.tables import TableConfig, read_table_rows
from regard.training.plan import plan_training
from regard.training.sources.rows import RowSource

N = 12
IDS = [str(100 + i) for i in range(N)]
CODES = [f"A{i}x" for i in range(N)]
STARS = [str(1 + i % 3) for i in range(N)]
MOODS = [["good", "bad"][i % 2] for i in range(N)]
REVIEWS = [f"the food of table {i} was fine" for i in range(N)]
TITLES = [f"table {i}" for i in range(N)]
NAMES = ["Ada", "Otto", "Mia", "Ugo", "Ida", "Leo", "Eva", "Max", "Uma", "Jon", "Liv", "Kai"]
GERMAN = [f"das Haus {i}" for i in range(N)]
ENGLISH = [f"the house {i} is a house" for i in range(N)]
PRICES = [f"{i}.50" for i in range(N)]


@pytest.mark.parametrize(
    ("columns", "text", "label"),
    [
        ([IDS, REVIEWS, STARS], REVIEWS, STARS),
        ([STARS, REVIEWS, IDS], REVIEWS, STARS),
        ([MOODS, REVIEWS], REVIEWS, MOODS),
        ([REVIEWS, MOODS], REVIEWS, MOODS),
        ([IDS, TITLES, REVIEWS, STARS], REVIEWS, STARS),
        ([IDS, NAMES, MOODS], NAMES, MOODS),
        ([NAMES, MOODS], NAMES, MOODS),
        ([CODES, PRICES, REVIEWS, MOODS], REVIEWS, MOODS),
        ([IDS, GERMAN, ENGLISH], GERMAN, ENGLISH),
        ([ENGLISH, GERMAN], ENGLISH, GERMAN),
        ([NAMES, CODES], NAMES, CODES),
        ([REVIEWS], REVIEWS, REVIEWS),
        ([IDS[:3], REVIEWS[:3], STARS[:3]], REVIEWS[:3], STARS[:3]),
    ],
)
def test_texts_and_labels_are_told_from_ids(
    columns: Sequence[list[str]], text: list[str], label: list[str]
) -> None:
    found = find_columns(columns)
    assert (columns[found.text], columns[found.label]) == (text, label)
    assert found.doubtful == ()
    if text is not label:
        assert find_columns(columns, text=found.text) == found
        assert find_columns(columns, label=found.label) == found


def test_what_fits_as_well_is_doubtful() -> None:
    assert find_columns([REVIEWS, ENGLISH, MOODS, STARS]).doubtful == (1, 2)


@given(st.lists(st.lists(st.text(), min_size=1, max_size=9), min_size=1, max_size=5))
def test_any_table_has_columns(columns: list[list[str]]) -> None:
    shortest = min(map(len, columns))
    found = find_columns([column[:shortest] for column in columns])
    assert 0 <= min(found.text, found.label) <= max(found.text, found.label) < len(columns)
    assert len(columns) == 1 or found.text != found.label


def write(path: Path, **columns: list[str]) -> Path:
    rows = [columns.keys(), *zip(*columns.values(), strict=True)]
    path.write_text("".join(",".join(row) + "\n" for row in rows), "utf-8")
    return path


def test_a_run_keeps_the_columns_that_were_found(tmp_path: Path) -> None:
    """Training took the ids for the texts, with a loss of 0."""
    path = write(tmp_path / "reviews.csv", id=IDS, review=REVIEWS, stars=STARS)
    plan = plan_training(RowSource("classification", path), None, tmp_path / "run")
    assert plan.data.facts["table"].endswith("text: column review; label: column stars")
    table = plan.run.recipe.data.table
    assert (table.text, table.label) == ("review", "stars")
    later = write(tmp_path / "later.csv", id=IDS[:2], review=REVIEWS[:2])
    rows = read_rows(ClassificationConfig(), later, table, label_required=False)
    assert [(one.text, one.answer) for one in rows.examples] == [(x, None) for x in REVIEWS[:2]]


def test_usual_names_prevail_and_a_doubt_is_told(tmp_path: Path) -> None:
    usual = write(tmp_path / "a.csv", label=TITLES, text=STARS, review=REVIEWS)
    assert read_table_rows(usual, TableConfig()).format.endswith(
        "text: column text; label: column label"
    )
    path = write(tmp_path / "b.csv", review=REVIEWS, mood=MOODS, stars=STARS)
    with pytest.warns(UserWarning, match=r"column review for the text and stars .* mood too: "):
        read_table_rows(path, TableConfig())


def test_a_chosen_column_of_ids_is_doubtful_where_there_are_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", id=IDS, review=REVIEWS, stars=STARS)
    for label in ("", "stars"):
        with pytest.warns(UserWarning, match="takes column id for the text .* be review too: "):
            read_table_rows(path, TableConfig(text="id", label=label))
    names = write(tmp_path / "b.csv", name=NAMES, mood=MOODS)
    read_table_rows(names, TableConfig(text="name", label="mood"))


def test_a_later_table_is_read_by_the_names_of_the_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "reviews.csv", review=REVIEWS, stars=STARS)
    found = read_table_rows(path, TableConfig()).columns
    assert found == {"text": "review", "label": "stars"}
    for others in (
        {"id": IDS, "review": REVIEWS, "stars": STARS},
        {"stars": STARS, "review": REVIEWS},
        {"review": REVIEWS},
    ):
        later = write(tmp_path / "later.csv", **others)
        config = TableConfig(text=found["text"], label=found["label"])
        rows = read_table_rows(later, config, label_required=False)
        assert [one.text for one in rows.examples] == REVIEWS
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{one}, said Ada\n" for one in REVIEWS), "utf-8")
    read = read_rows(ClassificationConfig(), lines, config, label_required=False)
    assert [one.text for one in read.examples] == [f"{one}, said Ada" for one in REVIEWS]


def test_rows_to_score_need_no_header(tmp_path: Path) -> None:
    path = write(tmp_path / "reviews.csv", review=REVIEWS, stars=STARS)
    test = tmp_path / "test.tsv"
    rows = zip(REVIEWS[:2], STARS[:2], strict=True)
    test.write_text("".join(f"{text}\t{label}\n" for text, label in rows), "utf-8")
    plan = plan_training(RowSource("classification", path, test), None, tmp_path / "run")
    assert plan.data.facts["test_rows"] == 2
    assert plan.run.recipe.data.table.text == "review"


def test_columns_of_rows_to_score_are_found_by_their_cells(tmp_path: Path) -> None:
    path = write(tmp_path / "reviews.csv", text=REVIEWS, label=MOODS)
    test = write(tmp_path / "test.csv", id=IDS, review=REVIEWS, mood=MOODS)
    plan = plan_training(RowSource("classification", path, test), None, tmp_path / "run")
    assert plan.data.facts["test_rows_with_a_text_in_training"] == N


def test_rows_to_score_without_labels_are_refused_by_column(tmp_path: Path) -> None:
    path = write(tmp_path / "reviews.csv", review=REVIEWS, stars=STARS)
    test = write(tmp_path / "test.csv", id=IDS, review=REVIEWS)
    with pytest.raises(UserError, match=r"test\.csv: has no column 'stars'"):
        plan_training(RowSource("classification", path, test), None, tmp_path / "run")
