"""Structure: receptive fields, and learning from text without labels."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.structure.receptive_field import receptive_field
from regard.studies.structure.raw_text import masked_autoencoder, free_labels
