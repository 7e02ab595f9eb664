"""The recipes that come with Regard."""

from regard.models.config import ModelConfig
from regard.models.config_positions import LearnedConfig, RotaryConfig
from regard.runs.recipe import DataConfig, MuonConfig, Recipe, TrainingConfig
from regard.text.config import BytePairsConfig, CharactersConfig, ObjectiveConfig, WordsConfig

_MODERN = Recipe(
    tokenizer=BytePairsConfig(size=2048),
    model=ModelConfig(dropout=0.0, positions=RotaryConfig()),
    pretraining=TrainingConfig(epochs=40, lr=2e-3, optimizer=MuonConfig()),
    finetuning=TrainingConfig(epochs=5, lr=3e-4),
    training=TrainingConfig(epochs=30, lr=1e-3),
)

_DEMO = Recipe(
    tokenizer=WordsConfig(),
    model=ModelConfig(
        block=64, n_layers=2, n_heads=2, d_model=128, dropout=0.0, positions=RotaryConfig()
    ),
    objective=ObjectiveConfig(next_token=0.7, questions=0.3, question_batch=128),
    pretraining=TrainingConfig(
        steps=1200, lr=1e-3, final_lr=0.02, optimizer=MuonConfig(), checkpoint_every=250
    ),
    finetuning=TrainingConfig(epochs=10, lr=5e-4, checkpoint_every=100),
    training=TrainingConfig(epochs=12, lr=5e-4, optimizer=MuonConfig(), checkpoint_every=100),
)

_TEXT = Recipe(
    data=DataConfig(documents="files", validation=0.0),
    tokenizer=CharactersConfig(),
    model=ModelConfig(
        block=128, n_layers=4, n_heads=4, d_model=128, dropout=0.0, positions=LearnedConfig()
    ),
    training=TrainingConfig(steps=2000, batch=32, lr=2e-3, optimizer=MuonConfig()),
)

RECIPES: dict[str, Recipe] = {"modern": _MODERN, "demo": _DEMO, "text": _TEXT}
