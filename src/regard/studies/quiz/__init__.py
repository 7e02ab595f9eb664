"""Quiz: concepts, each checked by code."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.quiz.concepts import concepts
from regard.studies.quiz.options import wrong_options
from regard.studies.quiz.span_corruption import span_corruption
from regard.studies.quiz.order_of_products import order_of_products
from regard.studies.quiz.looking_back import trained_embeddings, equal_heads
