"""The lessons: complete, in order, and true of what they show."""

import io
from contextlib import redirect_stdout

import pytest
import torch

from regard.book.lessons import Lesson, all_lessons, find_exercise, read_lessons
from regard.book.live import live_run
from regard.book.mathematics import with_math
from regard.courses import all_parts
from regard.errors import UserError
from regard.studies.registry import all_studies

LESSONS = pytest.mark.parametrize("lesson", all_lessons(), ids=lambda one: one.name)
LONGEST_SENTENCE = {"next": 64}
"""Characters that a view takes; others draw a map, and take 32."""


def test_the_path_is_in_order() -> None:
    names = [lesson.name for lesson in all_lessons()]
    assert len(set(names)) == 12
    for place, lesson in enumerate(all_lessons()):
        assert set(lesson.needs) <= set(names[:place])
        assert lesson.needs or place == 0


@LESSONS
def test_names_exist(lesson: Lesson) -> None:
    assert set(lesson.parts) <= {part.place for part in all_parts()}
    assert len(set(lesson.parts)) == len(lesson.parts)
    if lesson.study:
        assert lesson.study in {study.name for study in all_studies()}
    if lesson.exercise:
        assert find_exercise(lesson.exercise).title


@LESSONS
def test_a_program_is_short_and_prints_what_the_page_says(lesson: Lesson) -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(lesson.code, {})
    assert printed.getvalue().rstrip() == lesson.output
    assert len([line for line in lesson.code.splitlines() if line]) <= 12


@LESSONS
def test_texts_are_complete(lesson: Lesson) -> None:
    assert [option.right for option in lesson.options].count(True) == 1
    for text in (lesson.text, lesson.question, lesson.reason, lesson.summary):
        assert with_math(text)
    longest = LONGEST_SENTENCE.get(lesson.view or "", 32)
    assert all(len(text) <= longest for text in (lesson.sentence, *lesson.examples))
    assert bool(lesson.sentence) == bool(lesson.view)


def test_every_part_of_a_course_on_attention_is_near_a_lesson() -> None:
    """Most of all parts; the others are about pipelines and concepts."""
    listed = {place for lesson in all_lessons() for place in lesson.parts}
    assert len(listed) >= 0.75 * len(all_parts())


def test_an_incomplete_lesson_is_named() -> None:
    with pytest.raises(UserError, match=r"x\.toml, lesson 1"):
        read_lessons("[[lessons]]\nname = 'mask'\n", where="x.toml")
    with pytest.raises(UserError, match="practical-4 9: no such exercise"):
        find_exercise("practical-4 9")


# ---- what the lessons say of the live model


def heads(text: str) -> torch.Tensor:
    """Weights of all heads on a text, layer by layer."""
    run = live_run()
    maps = []
    for layer in run.language_model.body.layers:  # type: ignore[union-attr]
        layer.self_attention.attention.register_forward_hook(  # type: ignore[union-attr, operator]
            lambda module, given, _: maps.append(module.weights(*given, mask=None))
        )
    raise NotImplementedError
