"""Attention by hand: the computation of one head, and the role of queries, keys and values."""

from typing import Any

from regard.studies.single_head.designing import designing
from regard.studies.single_head.masking import masking
from regard.studies.single_head.noisy_keys import noisy_keys_one_head, noisy_keys_two_heads
from regard.studies.single_head.one_query import averaging, copying
from regard.studies.single_head.products import products
from regard.studies.single_head.random_heads import random_heads
from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = (
    copying,
    averaging,
    noisy_keys_one_head,
    noisy_keys_two_heads,
    designing,
    products,
    random_heads,
    masking,
)
