"""Attention by hand: what one head computes."""

from typing import Any

from regard.studies.by_hand.averaging import averaging
from regard.studies.by_hand.products import products
from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = (averaging, products)
