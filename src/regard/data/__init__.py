"""Datasets, batches and the order of examples. Special ids are arguments, never assumed.

The check of packed ids is here since packing, which does it too, imports no torch.
"""

from pathlib import Path

import numpy as np

from regard.errors import UserError

IGNORE = -100
"""The label of a position without loss (`ignore_index` of torch's cross entropy)."""
REPACK = "delete the packed corpus, and pack it again"
"""Repair of a damaged packed corpus: packing leaves a folder that holds one as it is."""


def require_vocabulary(ids: np.ndarray, vocabulary: int, path: Path) -> None:
    """Raise for ids beyond the vocabulary of a tokenizer.

    Raises:
        UserError: names the file and the id.
    """
    highest = int(ids.max(initial=0))
    if highest >= vocabulary:
        raise UserError(
            f"{path}: holds the id {highest}, but the tokenizer has {vocabulary} ids; {REPACK}"
        )
