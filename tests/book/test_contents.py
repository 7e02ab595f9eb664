"""The order of the book."""

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace
from tiny_book import PARTS, tiny_book, tiny_results

from regard.book.contents import Block, arrange, choose, derivations_of, make_book
from regard.courses import Shown, all_parts
from regard.errors import UserError
from regard.studies.finding import Finding
from regard.studies.registry import THEMES, all_studies
from regard.studies.study import Study


def test_parts_stand_by_course() -> None:
    book = tiny_book()
    assert [chapter.id for chapter in book.chapters] == ["jhu-hw5", "eecs182-hw8"]
    ids = [entry.id for chapter in book.chapters for entry in chapter.entries]
    assert ids == ["jhu-hw5-1.1", "jhu-hw5-1.2", "eecs182-hw8-3.a.ii"]


def test_a_study_is_in_full_where_it_is_first_shown() -> None:
    first, second = tiny_book().chapters[0].entries
    assert first.studies == (Block("averaging", True),), "a single number shows no study"
    assert second.studies == (Block("averaging", False),)
    assert second.derivations == (Block("square", True),)
    assert tiny_book().chapters[1].entries[0].derivations == (Block("square", False),)
    assert tiny_book().others == ("products", "fourier-features")


def test_statements_have_their_measurements() -> None:
    items = tiny_book().chapters[0].entries[0].items
    assert [item.id for item in items] == [
        "jhu-hw5-1.1-whole", "jhu-hw5-1.1-weight", "jhu-hw5-1.1-told",
    ]  # fmt: skip
    assert items[0].measurement is None
    assert items[1].measurement is not None
    assert items[1].measurement.values == (1054.0,)
    assert items[2].name == "regard study list"


def test_an_unknown_measurement_stops_the_book() -> None:
    wrong = Shown(id="x", text="x", by="study:averaging/nonsense")
    with pytest.raises(KeyError, match="averaging has no measurement nonsense"):
        arrange([replace(PARTS[0], shown=(wrong,))], tiny_results())


def test_an_error_stands_once_at_its_part() -> None:
    """Also if several parts show its study."""
    shown = (Shown(id="x", text="x", by="study:fourier-features"),)
    parts = [replace(PARTS[2], number=number, shown=shown) for number in ("3.a.ii", "3.a.iii")]
    book = arrange(parts, tiny_results())
    assert [entry.part.number for entry in book.corrected] == ["3.a.ii", "3.a.iii"]
    for entry in book.corrected:
        assert [one.part for one in entry.corrections] == [entry.part.number]
    assert not tiny_book().corrected


def test_texts_have_the_numbers_that_they_quote() -> None:
    part = replace(PARTS[0], answer="It is {study:products/score of state 1|.0f}.")
    (chapter,) = arrange([part], tiny_results()).chapters
    assert chapter.entries[0].part.answer == "It is 1054."


def test_the_subject_is_what_is_shown() -> None:
    results, (first, second, third) = tiny_results(), PARTS
    course = "Johns Hopkins CS 601.471/671, Self-supervised Models, Homework 5 (spring 2023)"
    assert arrange([first], results).subject == f"{course}, 1.1"
    assert arrange([first, second], results).subject == course
    assert arrange([first, third], results).subject == "questions of 2 courses"
    assert arrange([], results).subject == "studies"
    one = {"masking": results.findings["masking"]}
    alone = arrange([], dataclasses.replace(results, findings=one))
    assert alone.subject == results.findings["masking"].study.question
    every = [replace(first, course=part.course) for part in all_parts()]
    assert arrange(every, results).subject == "five courses, part by part"


def test_a_derivation_is_named_once() -> None:
    assert derivations_of(PARTS[1]) == ("square",)


def test_models_are_trained_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The studies of a part are stored ones, unless asked for."""
    trained = next(study for study in all_studies() if study.trains)
    part = replace(
        PARTS[1], shown=(Shown(id="x", text="x", by=f"study:{trained.name}"),), derivation=None
    )
    monkeypatch.setattr("regard.book.contents.all_parts", lambda: (part,))
    book = make_book(["jhu-hw5"])
    assert list(book.results.findings) == [trained.name]
    assert book.results.findings[trained.name].seconds == trained.stored_result().seconds
    assert not book.results.proofs
    seeds: list[object] = []

    def over_seeds(study: Study[Any], given: object) -> Finding:
        seeds.append(given)
        return study.stored_result()

    monkeypatch.setattr(Study, "over_seeds", over_seeds)
    make_book(["jhu-hw5"], train=True)
    assert seeds == [range(5)]


def chosen(*names: str) -> tuple[list[str], list[str]]:
    parts, studies = choose(names)
    return [part.place for part in parts], [study.name for study in studies]


def test_a_lesson_has_what_is_named_in_its_order() -> None:
    assert chosen("scale", "jhu-hw5 3.1") == (["jhu-hw5 3.1"], ["scale", "complexity"])
    parts, _ = chosen("jhu-hw5 3.5", "practical-4 2.b")
    assert parts == [*(f"jhu-hw5 3.5.{i}" for i in (1, 2, 3)), "practical-4 2.b"]
    (theme,) = (theme for theme in THEMES if theme.name == "low rank")
    assert chosen("low rank") == ([], [study.name for study in theme.studies])
    assert chosen("jhu-hw5")[0] == [p.place for p in all_parts() if p.course == "jhu-hw5"]
    assert chosen("jhu-hw5 1.1")[0] == ["jhu-hw5 1.1"], "not 1.10"


@pytest.mark.parametrize("name", ["scal", "jhu-hw5 9", "jhu", ""])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="is no course, part, theme or study"):
        choose([name])
