"""The quiz: concepts, each checked by code."""

from typing import Any

from regard.studies.quiz.concepts import concepts
from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = (concepts,)
