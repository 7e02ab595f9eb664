"""Parts of courses, read from TOML."""

import pytest

from regard.courses import all_parts, find_part, require_course
from regard.courses.course import read_parts
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


def test_parts_are_found_by_course_and_number() -> None:
    for part in all_parts():
        assert find_part(part.course, part.number) is part


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(UserError, match="did you mean jhu-hw5"):
        require_course("jhu-hw6")
    with pytest.raises(UserError, match=r"eecs182-disc8 2\.x: no such part; there are: 1\.a\.i"):
        find_part("eecs182-disc8", "2.x")
