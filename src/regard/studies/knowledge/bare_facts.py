"""Models of bare facts: a document is a full name and one word per fact.

Short documents are cheap, so that models can read thousands of people a thousand times.
"""

from collections.abc import Sequence
from itertools import product
from random import Random

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.config import override
from regard.data.batch import sequential_batches
from regard.data.causal import Documents
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.studies.model_cache import cached_run
from regard.tasks import names
from regard.tasks.rng import choice, shuffled
from regard.text.tokenizer import train_tokenizer
from regard.training.plan import plan_training
from regard.training.sources.documents import DocumentSource

KINDS = {
    "place": names.PLACES,
    "profession": names.PROFESSIONS,
    "subject": names.SUBJECTS,
    "hobby": names.HOBBIES,
}
"""Values of each kind of fact; all are equally likely."""
NAMES = tuple(" ".join(name) for name in product(names.FIRST_NAMES, names.LAST_NAMES))
"""All full names."""
NAME_TOKENS = 2

_SETTINGS = (
    *("model.context_length=8", "data.validation=0", "objective.questions=0"),
    *("objective.clozes=0", "objective.cloze_relevance=0", "objective.next_token=1"),
    "training.checkpoint_every=100000",
)


def draw_facts(people: int, kinds: Sequence[str], seed: int) -> list[str]:
    """Return a document for each of `people` random people with random facts."""
    draw = Random(seed)
    chosen = shuffled(draw, NAMES)[:people]
    return [" ".join([name, *(choice(draw, KINDS[kind]) for kind in kinds)]) for name in chosen]


def read_facts(documents: Sequence[str], steps: int, seed: int, *settings: str) -> Run:
    """Return a model trained on the documents; its vocabulary has all names and values."""
    recipe = override(
        RECIPES["demo"], [*_SETTINGS, f"training.steps={steps}", f"seed={seed}", *settings]
    )
    words = [" ".join(values) for values in (NAMES, *KINDS.values())]
    tokenizer = train_tokenizer(recipe.tokenizer, words)
    return cached_run(
        plan_training(DocumentSource(documents, index=False), recipe, "unused", tokenizer=tokenizer)
    )


@torch.inference_mode()
def token_losses(run: Run, rows: Sequence[Sequence[int]]) -> Float[Tensor, "rows tokens"]:
    """Return the cross-entropy in nats of each token, and of the end, of equally long rows.

    Columns beyond the end are padding, and 0.
    """
    texts = Documents([list(row) for row in rows], run.row_format, end=run.template.document.suffix)
    losses = [
        F.cross_entropy(
            run.language_model(batch.input_ids).double().mT, batch.labels, reduction="none"
        )
        for batch in sequential_batches(texts, 512)
    ]
    return torch.cat(losses)
