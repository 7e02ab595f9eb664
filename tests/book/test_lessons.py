"""The lessons: complete, in order, and true of what they show."""

import io
from contextlib import redirect_stdout

import msgspec
import pytest
import torch

from regard.book.lessons import Lesson, all_lessons, find_exercise, read_lessons
from regard.book.live import live_run
from regard.book.mathematics import with_math
from regard.courses import all_parts
from regard.decoding.generate import generate
from regard.errors import UserError
from regard.explorer.look import adapter_of
from regard.studies.registry import all_studies
from regard.tasks.names import FIRST_NAMES, PLACES


def test_the_path_is_in_order() -> None:
    names = [lesson.name for lesson in all_lessons()]
    assert len(set(names)) == 12
    for place, lesson in enumerate(all_lessons()):
        assert set(lesson.needs) <= set(names[:place])
        assert lesson.needs or place == 0


def test_lessons_are_complete_and_name_what_exists() -> None:
    parts, studies = ({one.place for one in all_parts()}, {one.name for one in all_studies()})
    for lesson in all_lessons():
        assert set(lesson.parts) <= parts, lesson.name
        assert len(set(lesson.parts)) == len(lesson.parts), lesson.name
        assert not lesson.study or lesson.study in studies, lesson.name
        assert not lesson.exercise or find_exercise(lesson.exercise).title, lesson.name
        assert [option.right for option in lesson.options].count(True) == 1, lesson.name
        for text in (lesson.text, lesson.question, lesson.reason, lesson.summary):
            assert with_math(text), lesson.name
        assert bool(lesson.sentence) == bool(lesson.view), lesson.name


@pytest.mark.parametrize("lesson", all_lessons(), ids=lambda one: one.name)
def test_a_program_is_short_and_prints_what_the_page_says(lesson: Lesson) -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(lesson.code, {})
    assert printed.getvalue().rstrip() == lesson.output
    assert len([line for line in lesson.code.splitlines() if line]) <= 12


def test_every_part_of_a_course_on_attention_is_near_a_lesson() -> None:
    """Most of all parts; the others are about pipelines and concepts."""
    listed = {place for lesson in all_lessons() for place in lesson.parts}
    assert len(listed) >= 0.75 * len(all_parts())


def test_an_incomplete_lesson_is_named() -> None:
    with pytest.raises(UserError, match=r"x\.toml, lesson 1"):
        read_lessons("[[lessons]]\nname = 'mask'\n", where="x.toml")
    with pytest.raises(ValueError, match="has 33 characters; shorten to 32"):
        msgspec.structs.replace(all_lessons()[0], sentence="a" * 33)
    with pytest.raises(ValueError, match="give either view or study"):
        msgspec.structs.replace(all_lessons()[0], study="scale")
    with pytest.raises(UserError, match="practical-4 9: no such exercise"):
        find_exercise("practical-4 9")


# ---- what the lessons say of the live model


def heads(text: str) -> list[torch.Tensor]:
    """Weights of each layer's heads on a text."""
    (only,) = adapter_of(live_run()).attention_maps(text)
    return [layer.record.weights[0] for layer in only.layers]


def entropy(weights: torch.Tensor) -> torch.Tensor:
    """Of the last query's weights, in nats."""
    last = weights[:, -1]
    return -(last * last.clamp_min(1e-9).log()).sum(-1).mean()


def loss(text: str) -> float:
    ids = torch.tensor([live_run().tokenizer.encode(text)])
    with torch.no_grad():
        logits = live_run().language_model(ids)
    return torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:]).item()


TEXTS = ("Yara Linden was born in", "Selma is a nurse. Selma likes", "a model has weights and")


@pytest.mark.parametrize("text", TEXTS)
def test_heads_are_as_the_lessons_say(text: str) -> None:
    first, second, third = heads(text)
    assert entropy(first) > max(entropy(second), entropy(third))
    spaces = torch.tensor([letter == " " for letter in text])
    later = int(spaces.nonzero()[0]) + 1
    assert second[3][later:, spaces].sum(-1).mean() > 0.6


def test_words_in_reverse_order_have_a_higher_loss() -> None:
    (lesson,) = (one for one in all_lessons() if one.name == "training")
    usual, backwards, letters = map(loss, lesson.examples)
    assert lesson.examples[1].split() == lesson.examples[0].split()[::-1]
    assert usual < backwards < letters


def test_an_unknown_name_gets_a_place() -> None:
    (lesson,) = (one for one in all_lessons() if one.name == "knowledge")
    known, unknown = generate(live_run(), lesson.examples, raw=True, max_new_tokens=14)
    assert known.startswith("Yara Linden was born in Elmowick.")
    assert "Maja" not in FIRST_NAMES
    assert unknown.split()[5].rstrip(".") in PLACES
