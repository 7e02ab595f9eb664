"""Recurrent networks: gradients through time, and recurrent networks with attention."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.recurrent.context import fixed_windows
from regard.studies.recurrent.backpropagation import backpropagation_through_time
from regard.studies.recurrent.backpropagation import vanishing_and_exploding
from regard.studies.recurrent.bottleneck import bottleneck, probing
from regard.studies.recurrent.encoder_decoder import encodings, encoder_gradient, roles_of_sequences
from regard.studies.recurrent.context import one_way_or_both
