"""Structure: receptive fields, and learning from text without labels."""

from typing import Any

from regard.studies.structure.free_labels import free_labels
from regard.studies.structure.masked_autoencoder import masked_autoencoder
from regard.studies.structure.receptive_field import receptive_field
from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = (receptive_field, masked_autoencoder, free_labels)
