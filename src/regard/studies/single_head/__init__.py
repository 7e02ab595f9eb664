"""Attention by hand: the computation of one head, and the role of queries, keys and values."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.single_head.one_head import copying, averaging
from regard.studies.single_head.noisy_keys import noisy_keys_one_head, noisy_keys_two_heads
from regard.studies.single_head.designing import designing
from regard.studies.single_head.one_head import products
from regard.studies.single_head.attention_maps import random_heads, masking
