"""Trained models: architectures for tasks, structures that heads find, and the effect of
training."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.trained_models.task_models import architectures, different_widths
from regard.studies.trained_models.task_models import several_summaries
from regard.studies.trained_models.several_heads import two_heads, heads_as_filters
from regard.studies.trained_models.decoders import three_sentences
from regard.studies.trained_models.before_training import head_patterns
from regard.studies.trained_models.pretrained import pretrained_heads
from regard.studies.trained_models.decoders import pretrained_decoder
from regard.studies.trained_models.pretrained import two_meanings
from regard.studies.trained_models.reading import structures, linear_probe
from regard.studies.trained_models.before_training import untrained
