"""The folders of the examples in docstrings."""

from pathlib import Path

import regard
from regard.models.config import (
    EncoderConfig,
    EncoderDecoderConfig,
    ModelConfig,
    TargetConfig,
    TransformerConfig,
)
from regard.models.head_config import (
    ClassificationHeadConfig,
    HeadConfig,
    LMHeadConfig,
    MaskedLMHeadConfig,
    TokenClassificationHeadConfig,
)
from tiny_comparisons import finished, made_up, write_cells

BORN = {"Ada": "Rome", "Bob": "Oslo", "Eve": "Rome", "Max": "Oslo"}
SETTINGS = (
    "tokenizer.kind=words",
    *("model.n_layers=2", "model.n_heads=2", "model.d_model=16", "model.context_length=32"),
    *("model.dropout=0", "objective.next_token=0.5", "objective.questions=0.5"),
    *("training.steps=60", "training.batch=8", "training.lr=0.02", "data.validation=0"),
)
TRANSFORMER = TransformerConfig(context_length=32, n_layers=1, n_heads=2, d_model=16)
ENCODER = EncoderConfig(context_length=32, n_layers=1, n_heads=2, d_model=16)
TARGET = TargetConfig(context_length=32, n_layers=1, n_heads=2, d_model=16)
UNTRAINED: dict[str, tuple[ModelConfig, HeadConfig]] = {
    "labels": (ENCODER, ClassificationHeadConfig(labels=("good", "bad"))),
    "tags": (ENCODER, TokenClassificationHeadConfig(labels=("name", "other"))),
    "masked": (ENCODER, MaskedLMHeadConfig()),
    "target": (EncoderDecoderConfig(encoder=TRANSFORMER, decoder=TARGET), LMHeadConfig()),
}


def write_folders(folder: Path) -> None:
    """Write a run that answers where four people were born, untrained runs, and a comparison."""
    run = regard.pretrain(
        [f"{name} was born in {place}." for name, place in BORN.items()],
        out=folder / "tiny",
        questions=[
            regard.Example(text=f"Where was {name} born?", answer=place)
            for name, place in BORN.items()
        ],
        settings=SETTINGS,
        index=False,
    )
    for name, (model, head) in UNTRAINED.items():
        recipe = regard.Recipe(model=model, head=head, tokenizer=run.recipe.tokenizer)
        other = regard.Run.new(folder / name, recipe, run.tokenizer, {})
        other.save_description()
        other.save_weights()
    scores = {("softmax", 0.01, 0): finished(0.9, 0.9), ("elu", 0.01, 0): finished(0.6, 0.5)}
    (folder / "grid").mkdir()
    write_cells(made_up(scores, out=folder / "grid"))
