"""Attention by hand: what one head computes."""

from typing import Any

from regard.studies.by_hand.averaging import averaging
from regard.studies.by_hand.copying import copying
from regard.studies.by_hand.designing import designing
from regard.studies.by_hand.masking import masking
from regard.studies.by_hand.noisy_keys_one_head import noisy_keys_one_head
from regard.studies.by_hand.noisy_keys_two_heads import noisy_keys_two_heads
from regard.studies.by_hand.products import products
from regard.studies.by_hand.random_heads import random_heads
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
