"""The world on disk reads back as the world that was made."""

from pathlib import Path

import msgspec
import pytest

from regard.errors import UserError
from regard.tasks.examples import read_questions
from regard.tasks.world import QUESTIONS, Person, World, WorldConfig, make_world
from regard.tasks.world_files import save_world
from regard.text.corpus import read_corpus


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(WorldConfig(people=90, absent=20, biographies=2))


@pytest.fixture(scope="module")
def saved(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("world") / "deep" / "world"
    save_world(world, path)
    return path


def test_the_corpus_is_the_documents_a_line_each(world: World, saved: Path) -> None:
    read = read_corpus([saved / "wiki.txt"])
    assert [document.text for document in read] == list(world.documents)


def test_questions_are_those_of_each_group(world: World, saved: Path) -> None:
    groups = {
        "birth_places_train.tsv": world.questions("qa_train", QUESTIONS),
        "birth_dev.tsv": world.questions("text_only"),
        "birth_test_inputs.tsv": world.questions("absent"),
    }
    for name, expected in groups.items():
        read = [(one.text, one.answer) for one in read_questions(saved / name)]
        assert read == [(one.text, one.answer) for one in expected]


def test_the_truth_about_everyone_is_kept(world: World, saved: Path) -> None:
    lines = (saved / "people.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line, type=Person) for line in lines] == list(world.people)


def test_saving_is_exact(world: World, saved: Path, tmp_path: Path) -> None:
    tmp_path.joinpath("empty").mkdir()
    save_world(world, tmp_path / "empty")
    for path in saved.iterdir():
        assert (tmp_path / "empty" / path.name).read_bytes() == path.read_bytes()


def test_a_place_that_holds_something_is_left_alone(world: World, tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("mine", encoding="utf-8")
    folder.mkdir()
    (folder / "wiki.txt").write_text("mine", encoding="utf-8")
    for out in (file, folder):
        with pytest.raises(UserError, match=r"choose another --out"):
            save_world(world, out)
    assert file.read_text(encoding="utf-8") == "mine"
    assert [path.name for path in folder.iterdir()] == ["wiki.txt"]
    assert (folder / "wiki.txt").read_text(encoding="utf-8") == "mine"
