"""Derivations of results of the courses; every line is evaluated on random inputs.

`DERIVATIONS["softmax-cross-entropy"].check(seed=0)` returns the relative error of each line.
"""

from regard.derivations import (
    causal_sums,
    complexity,
    feature_products,
    head_design,
    heads,
    kernels,
    low_rank,
    orthogonal_features,
    positions,
    products,
    random_features,
    receptive_field,
    recurrence,
    two_heads,
)
from regard.derivations.derivation import TOLERANCE, Derivation, Inputs, Relation, Step, WorstCase

__all__ = ["DERIVATIONS", "TOLERANCE", "Derivation", "Inputs", "Relation", "Step", "WorstCase"]

DERIVATIONS: dict[str, Derivation] = {
    derivation.name: derivation
    for theme in (
        recurrence,
        complexity,
        low_rank,
        products,
        heads,
        two_heads,
        head_design,
        positions,
        receptive_field,
        kernels,
        causal_sums,
        random_features,
        orthogonal_features,
        feature_products,
    )
    for derivation in theme.DERIVATIONS
}
"""All derivations by name, theme by theme."""
