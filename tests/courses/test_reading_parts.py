"""Parts of courses, read from TOML."""

import pytest

from regard.courses import (
    Correction,
    Part,
    all_corrections,
    find_part,
    require_course,
)
from regard.courses.course import read_course
from regard.errors import UserError

PART = """
[[parts]]
number = "1.a"
kind = "explain"
problem = '''
Does a sum
have an order? Terms are numbers.'''
answer = '''
No.

Addition commutes: $a + b = b + a$.
'''
shown = [{ id = "sum", text = "Equal.", by = "study:permutation/largest change" }]
"""
CORRECTION = """
[[corrections]]
part = "1.1"
study = "adding"
says = "It falls."
right = "It does not."
"""


def test_paragraphs_are_unwrapped() -> None:
    (part,) = read_course(Part, PART, "jhu-hw5")
    assert part.place == "jhu-hw5 1.a"
    assert part.problem == "Does a sum have an order? Terms are numbers."
    assert part.question == "Does a sum have an order?"
    assert part.answer == "No.\n\nAddition commutes: $a + b = b + a$."
    assert part.studies == ("permutation",)


def test_errors_of_a_course_are_read() -> None:
    (one,) = read_course(Correction, CORRECTION, "jhu-hw5")
    assert (one.course, one.part, one.study) == ("jhu-hw5", "1.1", "adding")
    assert (one.says, one.right) == ("It falls.", "It does not.")


@pytest.mark.parametrize(
    ("kind", "old", "new", "message"),
    [
        (Part, '"explain"', '"explane"', "part 1.a: kind: .*'explane'.*; did you mean explain"),
        (Part, "answer =", "anwser =", "part 1.a: .*anwser.*; did you mean answer"),
        (Part, 'number = "1.a"', "number = 1", "part 1: number: "),
        (Part, "study:perm", "lemma:perm", r"part 1.a: shown\[0\].by: "),
        (Part, "[[parts]]", "[[parts]", "isn't TOML"),
        (Correction, 'right = "It does not."', "", "correction 1: .*`right`"),
        (Correction, "It falls", "It\nfalls", "isn't TOML"),
    ],
)
def test_a_mistake_is_named_with_file_and_field(
    kind: type[Part] | type[Correction], old: str, new: str, message: str
) -> None:
    text = (PART if kind is Part else CORRECTION).replace(old, new)
    with pytest.raises(UserError, match=rf"^jhu-hw5\.toml(:|,) {message}.*$"):
        read_course(kind, text, "jhu-hw5")


def test_every_error_stands_at_a_part_whose_study_shows_it() -> None:
    assert len(all_corrections()) >= 22
    for one in all_corrections():
        assert one.study in find_part(one.course, one.part).studies


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(UserError, match="did you mean jhu-hw5"):
        require_course("jhu-hw6")
    with pytest.raises(UserError, match=r"eecs182-disc8 2\.x: no such part; there are: 1\.a\.i"):
        find_part("eecs182-disc8", "2.x")
