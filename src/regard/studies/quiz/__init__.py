"""Quiz: concepts, each checked by code."""

from typing import Any

from regard.studies.quiz.concepts import concepts
from regard.studies.quiz.equal_heads import equal_heads
from regard.studies.quiz.options import wrong_options
from regard.studies.quiz.order_of_products import order_of_products
from regard.studies.quiz.span_corruption import span_corruption
from regard.studies.quiz.trained_embeddings import trained_embeddings
from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = (
    concepts,
    wrong_options,
    span_corruption,
    order_of_products,
    trained_embeddings,
    equal_heads,
)
