"""Parts of courses, read from TOML."""

import pytest

from regard.courses import all_corrections, all_parts, find_part, require_course
from regard.courses.course import read_corrections, read_parts
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


def test_paragraphs_are_unwrapped() -> None:
    (part,) = read_parts(PART, "jhu-hw5", where="x.toml")
    assert part.place == "jhu-hw5 1.a"
    assert part.problem == "Does a sum have an order? Terms are numbers."
    assert part.question == "Does a sum have an order?"
    assert part.answer == "No.\n\nAddition commutes: $a + b = b + a$."
    assert part.studies == ("permutation",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"explain"', '"explane"', "x.toml, part 1.a: kind: .*'explane'.*; did you mean explain"),
        ("answer =", "anwser =", "x.toml, part 1.a: .*anwser.*; did you mean answer"),
        ('number = "1.a"', "number = 1", "x.toml, part 1: number: "),
        ("study:perm", "lemma:perm", r"x.toml, part 1.a: shown\[0\].by: "),
        ("[[parts]]", "[[parts]", "x.toml: isn't TOML"),
    ],
)
def test_a_mistake_is_named_with_file_and_field(old: str, new: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read_parts(PART.replace(old, new), "jhu-hw5", where="x.toml")
    assert "\n" not in str(caught.value)


def test_errors_of_a_course_are_read() -> None:
    text = """
[[corrections]]
part = "1.1"
study = "adding"
says = "It falls."
right = "It does not."
"""
    with pytest.raises(UserError, match=r"x\.toml: isn't TOML"):
        read_corrections(text.replace("It falls", "It\nfalls"), "jhu-hw5", where="x.toml")
    (one,) = read_corrections(text, "jhu-hw5", where="x.toml")
    assert (one.course, one.part, one.study) == ("jhu-hw5", "1.1", "adding")
    assert one.says == "It falls."
    with pytest.raises(UserError, match=r"x\.toml, correction 1: .*`right`"):
        read_corrections(
            "[[corrections]]\npart = '1'\nstudy = 'a'\nsays = 'b'", "jhu-hw5", where="x.toml"
        )


def test_every_error_stands_at_a_part_whose_study_shows_it() -> None:
    assert len(all_corrections()) >= 22
    for one in all_corrections():
        assert one.study in find_part(one.course, one.part).studies


def test_parts_are_found_by_course_and_number() -> None:
    for part in all_parts():
        assert find_part(part.course, part.number) is part


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(UserError, match="did you mean jhu-hw5"):
        require_course("jhu-hw6")
    with pytest.raises(UserError, match=r"eecs182-disc8 2\.x: no such part; there are: 1\.a\.i"):
        find_part("eecs182-disc8", "2.x")
