"""Questions of five courses, with their answers, as data."""

from regard.courses.course import (
    COURSES,
    Option,
    Part,
    Shown,
    all_parts,
    find_part,
    require_course,
)

__all__ = ["COURSES", "Option", "Part", "Shown", "all_parts", "find_part", "require_course"]
