"""Structure: receptive fields, and learning from text without labels."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.structure.receptive_field import receptive_field
from regard.studies.structure.masked_autoencoder import masked_autoencoder
from regard.studies.structure.free_labels import free_labels
