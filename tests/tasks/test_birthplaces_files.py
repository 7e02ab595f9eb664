"""The course's real data, read from where REGARD_BIRTHPLACES says it lies."""

import json
import os
from math import log
from pathlib import Path

import pytest

from regard.cli import main
from regard.files import read_text
from regard.tasks.examples import read_questions
from regard.text.config import CharactersConfig
from regard.text.corpus import read_corpus
from regard.text.tokenizer import encode_documents, train_tokenizer


@pytest.fixture(scope="module")
def data() -> Path:
    place = os.environ.get("REGARD_BIRTHPLACES")
    if not place:
        pytest.skip("REGARD_BIRTHPLACES doesn't name the folder of the real corpus")
    return Path(place)


def test_london_is_right_for_25_of_500(data: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    questions = str(data / "birth_dev.tsv")
    assert (
        main.run(["evaluate", "any", questions, "--baseline", "London", "--json", str(figures)])
        == 0
    )
    found = json.loads(figures.read_text())
    assert (found["correct"], found["questions"]) == (25, 500)


def test_all_files_are_read(data: Path) -> None:
    assert len(read_corpus([data / "wiki.txt"])) == 2937
    assert len(read_questions(data / "birth_places_train.tsv")) == 2000
    unanswered = read_questions(data / "birth_test_inputs.tsv")
    assert len(unanswered) == 437
    assert all(question.answer is None for question in unanswered)


def test_the_course_s_recipe_has_its_sizes(data: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = ["pretrain", str(data / "wiki.txt"), "--out", str(tmp_path / "run")]
    assert main.run([*command, "--recipe", "course", "--dry-run", "--json", str(figures)]) == 0
    found = json.loads(figures.read_text())
    assert (found["parameters"], found["vocabulary"], found["steps"]) == (3_323_392, 256, 14_950)
    assert abs(found["untrained_loss"] - log(256)) < 0.1


def test_the_characters_are_those_of_the_course(data: Path) -> None:
    tokenizer = train_tokenizer(CharactersConfig(), [read_text(data / "wiki.txt")])
    assert tokenizer.size == 256
    documents = read_corpus([data / "wiki.txt"])
    encoded = encode_documents(tokenizer, documents)
    assert all(
        tokenizer.decode(ids) == document.text
        for ids, document in zip(encoded, documents, strict=True)
    )
