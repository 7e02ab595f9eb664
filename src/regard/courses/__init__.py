"""Questions of five courses, with their answers, as data."""

from regard.courses.course import (
    COURSES,
    Correction,
    Option,
    Part,
    Shown,
    all_corrections,
    all_parts,
    find_part,
    require_course,
)

__all__ = [
    "COURSES",
    "Correction",
    "Option",
    "Part",
    "Shown",
    "all_corrections",
    "all_parts",
    "find_part",
    "require_course",
]
