"""The run of the examples in docstrings."""

from pathlib import Path

import regard

BORN = {"Ada": "Rome", "Bob": "Oslo", "Eve": "Rome", "Max": "Oslo"}
SETTINGS = (
    "tokenizer.kind=words",
    *("model.n_layers=2", "model.n_heads=2", "model.d_model=16", "model.context_length=32"),
    *("model.dropout=0", "data.validation=0", "objective.next_token=0.5", "objective.questions=0.5"),
    *("training.steps=60", "training.batch=8", "training.lr=0.02"),
)


def example_run(path: Path) -> regard.Run:
    """Train a run that answers where four people were born."""
    return regard.pretrain(
        [f"{name} was born in {place}." for name, place in BORN.items()],
        out=path,
        questions=[
            regard.Example(text=f"Where was {name} born?", answer=place)
            for name, place in BORN.items()
        ],
        settings=SETTINGS,
        index=False,
    )
