"""Knowledge: recalled and invented answers."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.knowledge.training_texts import pretraining
from regard.studies.knowledge.absent import recalled, fallback, bias
from regard.studies.knowledge.training_texts import counterfactual, reversal, augmentation
from regard.studies.knowledge.bare_facts import capacity, seen_once
