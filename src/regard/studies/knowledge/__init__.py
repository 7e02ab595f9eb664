"""Knowledge: recalled and invented answers."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.knowledge.pretraining import pretraining
from regard.studies.knowledge.recalled import recalled
from regard.studies.knowledge.fallback import fallback
from regard.studies.knowledge.bias import bias
from regard.studies.knowledge.counterfactual import counterfactual
from regard.studies.knowledge.reversal import reversal
from regard.studies.knowledge.augmentation import augmentation
from regard.studies.knowledge.capacity import capacity
from regard.studies.knowledge.seen_once import seen_once
