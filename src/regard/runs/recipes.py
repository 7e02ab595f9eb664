"""The built-in recipes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from regard.config import override
from regard.errors import UserError, alternatives
from regard.files import exists
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    TargetConfig,
    TransformerConfig,
)
from regard.models.head_config import (
    ClassificationHeadConfig,
    EmbeddingHeadConfig,
    MaskedLMHeadConfig,
    ReconstructionHeadConfig,
    TokenClassificationHeadConfig,
)
from regard.positions.config import LearnedConfig, RotaryConfig, SinusoidalConfig
from regard.runs.recipe import (
    CosineConfig,
    DataConfig,
    MinGPTConfig,
    MuonConfig,
    ObjectiveConfig,
    Recipe,
    TrainingConfig,
    read_recipe,
)
from regard.tasks.casing import CasingConfig
from regard.tasks.circuit_probes import BigramBackcopyConfig, IndirectObjectConfig, RepeatedConfig
from regard.tasks.classification import ClassificationConfig
from regard.tasks.entailment import EntailmentConfig
from regard.tasks.mad import (
    CompressionConfig,
    FuzzyRecallConfig,
    InContextRecallConfig,
    MemorizationConfig,
    NoisyRecallConfig,
)
from regard.tasks.probes import (
    CopyConfig,
    InductionConfig,
    MqarConfig,
    NeedleConfig,
    ReverseConfig,
    SelectiveCopyConfig,
    SortConfig,
)
from regard.tasks.registry import TaskConfig
from regard.tasks.retrieval import RetrievalConfig
from regard.tasks.state_tracking import ParityConfig, StateTrackingConfig
from regard.tasks.summaries import SummariesConfig
from regard.tasks.tagging import TaggingConfig
from regard.tasks.translation import TranslationConfig
from regard.tasks.world_questions import WorldQuestionsConfig
from regard.text.config import (
    BytePairsConfig,
    CharactersConfig,
    SpecialTokensConfig,
    WordsConfig,
)
from regard.text.template import TemplateConfig

T = TypeVar("T", bound=TransformerConfig)

_DEFAULT = Recipe(
    tokenizer=BytePairsConfig(size=2048),
    model=DecoderConfig(dropout=0.0, positions=RotaryConfig()),
    training=TrainingConfig(epochs=40, lr=2e-3, optimizer=MuonConfig()),
    finetuning="default-finetune",
)
"""For any text."""


def _course_training(*, epochs: int, batch: int, lr: float) -> TrainingConfig:
    """Return a training without shuffling, on a schedule for 200 epochs of 2,938 texts."""
    schedule = MinGPTConfig(positions=200 * 2938 * 128)
    return TrainingConfig(epochs=epochs, batch=batch, shuffle=False, lr=lr, schedule=schedule)


COURSE_TOKENS = SpecialTokensConfig(pad="□", bos="⁇", eos="⁇", sep="⁇", mask="⁇")
"""One character each, so that printed rows and labels are aligned."""

_COURSE = Recipe(
    data=DataConfig(blank_lines=True, ascii_questions=True, validation=0.0),
    tokenizer=CharactersConfig(special_tokens=COURSE_TOKENS, newline=True),
    template=TemplateConfig(
        document="{document}{eos}", prompt="{question}", completion="{sep}{answer}{eos}"
    ),
    model=DecoderConfig(n_layers=4, n_heads=8, d_model=256, dropout=0.1, positions=LearnedConfig()),
    objective=ObjectiveConfig(next_token=0.0, span_corruption=1.0),
    training=_course_training(epochs=650, batch=128, lr=6e-3),
    finetuning="course-finetune",
)
"""Assignment 5 of Stanford's CS224N (2021–23), on the birthplaces of people in Wikipedia."""

_MODERN = replace(
    _DEFAULT,
    data=DataConfig(validation=0.0),
    objective=ObjectiveConfig(
        next_token=0.1, clozes=0.65, cloze_relevance=16, questions=0.25, question_batch=256
    ),
    training=TrainingConfig(steps=1200, lr=2e-3, optimizer=MuonConfig(), checkpoint_every=100),
)
"""The course's task with better results: text, clozes and questions together."""

_DEMO = Recipe(
    tokenizer=WordsConfig(),
    model=DecoderConfig(
        context_length=64, n_layers=2, n_heads=2, d_model=128, dropout=0.0, positions=RotaryConfig()
    ),
    objective=ObjectiveConfig(
        next_token=0.6, clozes=0.2, cloze_relevance=8, questions=0.2, question_batch=128
    ),
    training=TrainingConfig(
        steps=800,
        lr=1e-3,
        schedule=CosineConfig(final=0.02),
        optimizer=MuonConfig(),
        checkpoint_every=250,
    ),
    finetuning="demo-finetune",
)

_HUGGING_FACE_FINETUNING = TrainingConfig(epochs=3, batch=16, lr=5e-5)
"""Devlin et al., 2019, appendix A.3: 2 to 4 epochs, batches of 16 or 32, rates of 2e-5 to 5e-5."""

_TEXT = Recipe(
    data=DataConfig(documents="auto"),
    tokenizer=CharactersConfig(unknown="bytes"),
    model=DecoderConfig(n_layers=4, n_heads=4, d_model=128, dropout=0.0, positions=LearnedConfig()),
    training=TrainingConfig(steps=2000, batch=32, lr=2e-3, optimizer=MuonConfig()),
)

_GPT_SMALL = Recipe(
    data=DataConfig(documents="auto"),
    tokenizer=BytePairsConfig(size=32_768),
    model=DecoderConfig(
        context_length=1024,
        n_layers=12,
        n_heads=12,
        d_model=768,
        d_ff=2048,  # three matrices with as many weights as two of width 3072
        activation="silu",
        gated=True,
        norm_type="rms-norm",
        qk_norm=True,
        qkv_bias=False,
        o_bias=False,
        ff_bias=False,
        dropout=0.0,
        positions=RotaryConfig(),
        tie_head=True,
    ),
    training=TrainingConfig(
        epochs=4, batch=128, accumulation=16, lr=6e-4, optimizer=MuonConfig(muon_lr=0.02)
    ),
)
"""For text on a GPU.

Sizes: the smallest GPT-2 (Radford et al., 2019, table 2). Layers: Llama (Touvron et al., 2023,
§2.2), with norms of queries and keys (Yang et al., 2025, §2); d_ff: Shazeer (2020, §3.1). lr:
GPT-3 of this size (Brown et al., 2020, table 2.1). muon_lr: Jordan et al. (2024). Repeating a text
up to four times is nearly as good as new text (Muennighoff et al., 2023).
"""


def _small(kind: type[T], **settings: Any) -> T:
    """Return the configuration of a small stack of layers."""
    sizes = {"context_length": 128, "n_layers": 2, "n_heads": 4, "d_model": 128, "dropout": 0.0}
    return kind(**sizes | {"positions": RotaryConfig()} | settings)


def _pair(**settings: Any) -> EncoderDecoderConfig:
    """Return the configuration of a small encoder–decoder."""
    encoder, decoder = _small(TransformerConfig, **settings), _small(TargetConfig, **settings)
    return EncoderDecoderConfig(encoder=encoder, decoder=decoder)


def _steps(steps: int, lr: float, batch: int = 64) -> TrainingConfig:
    """Return the configuration of a training of some minutes."""
    schedule = CosineConfig(final=0.02)
    return TrainingConfig(
        steps=steps, batch=batch, lr=lr, schedule=schedule, optimizer=MuonConfig()
    )


def _for_task(task: TaskConfig, **parts: Any) -> Recipe:
    """Return the recipe of a task, by default for an encoder–decoder."""
    usual: dict[str, Any] = {
        "data": DataConfig(validation=0.0),
        "tokenizer": WordsConfig(),
        "model": _pair(),
        "training": _steps(1000, lr=2e-3),
    }
    return Recipe(task=task, **usual | parts)


def _for_probe(task: TaskConfig, **model: Any) -> Recipe:
    """Return the recipe of a probe for a decoder of two layers."""
    return _for_task(task, model=_small(DecoderConfig, d_model=64, n_heads=2, **model))


_MASKED = replace(
    _DEFAULT,
    model=_small(EncoderConfig, d_model=256, n_heads=8, n_layers=4),
    head=MaskedLMHeadConfig(),
    objective=ObjectiveConfig(next_token=0.0, masked_tokens=1.0),
)
"""An encoder that is pretrained by masked tokens (BERT)."""

TASKS = {
    "casing": _for_task(
        CasingConfig(),
        tokenizer=CharactersConfig(),
        # Cross-attention selects by position, which rotary positions don't encode there.
        model=_pair(positions=SinusoidalConfig()),
        training=_steps(600, lr=3e-3),
    ),
    "summaries": _for_task(SummariesConfig(), training=_steps(1000, lr=2e-3, batch=32)),
    "translation": _for_task(TranslationConfig()),
    "classification": _for_task(
        ClassificationConfig(),
        tokenizer=WordsConfig(unknown="unk"),
        model=_small(EncoderConfig),
        head=ClassificationHeadConfig(),
    ),
    "tagging": _for_task(
        TaggingConfig(),
        # A small vocabulary, so that new names consist of known subwords.
        tokenizer=BytePairsConfig(size=512),
        model=_small(EncoderConfig),
        head=TokenClassificationHeadConfig(),
        training=_steps(300, lr=2e-3),
    ),
    "entailment": _for_task(
        EntailmentConfig(training=24_000),
        model=_small(EncoderConfig, n_token_types=2),
        head=ClassificationHeadConfig(),
        # Many small steps: the model compares the two texts only after hundreds of them.
        training=_steps(2000, lr=2e-3, batch=32),
    ),
    "retrieval": _for_task(
        RetrievalConfig(), model=_small(EncoderConfig), head=EmbeddingHeadConfig()
    ),
    "world": _for_task(
        WorldQuestionsConfig(),
        model=_small(DecoderConfig, context_length=64, n_heads=2),
        objective=ObjectiveConfig(next_token=0.7, questions=0.3, question_batch=128),
        training=_steps(1600, lr=1e-3),
    ),
    # Keys must depend on the preceding token: a short convolution replaces a layer for it.
    "mqar": _for_probe(MqarConfig(), short_conv=4),
    "copy": _for_probe(CopyConfig()),
    "selective-copy": _for_probe(SelectiveCopyConfig()),
    "induction": _for_probe(InductionConfig(), short_conv=4),
    "sort": _for_probe(SortConfig()),
    "reverse": _for_probe(ReverseConfig()),
    "needle": _for_probe(NeedleConfig(), short_conv=4),
    "parity": _for_probe(ParityConfig(), context_length=256),
    "state-tracking": _for_probe(StateTrackingConfig()),
    "in-context-recall": _for_probe(InContextRecallConfig(), short_conv=4),
    "noisy-recall": _for_probe(NoisyRecallConfig(), short_conv=4),
    "fuzzy-recall": _for_probe(FuzzyRecallConfig(), short_conv=4),
    "memorization": _for_probe(MemorizationConfig()),
    "compression": replace(_for_probe(CompressionConfig()), head=ReconstructionHeadConfig()),
    "repeated": _for_probe(RepeatedConfig()),
    "indirect-object": _for_probe(IndirectObjectConfig()),
    "bigram-backcopy": _for_probe(BigramBackcopyConfig()),
}
"""Recipes of the tasks, by kind."""

RECIPES: dict[str, Recipe] = {
    "default": _DEFAULT,
    "default-finetune": replace(_DEFAULT, training=TrainingConfig(epochs=5, lr=3e-4)),
    "questions": replace(_DEFAULT, training=TrainingConfig(epochs=30, lr=1e-3)),
    "finetune": replace(_DEFAULT, training=TrainingConfig(epochs=10)),
    "course": _COURSE,
    "course-finetune": replace(_COURSE, training=_course_training(epochs=10, batch=256, lr=6e-4)),
    "course-questions": replace(_COURSE, training=_course_training(epochs=75, batch=256, lr=6e-4)),
    "modern": _MODERN,
    "demo": _DEMO,
    "demo-finetune": replace(
        _DEMO, training=TrainingConfig(epochs=10, lr=5e-4, checkpoint_every=100)
    ),
    "demo-questions": replace(
        _DEMO,
        training=TrainingConfig(epochs=12, lr=5e-4, optimizer=MuonConfig(), checkpoint_every=100),
    ),
    "hugging-face-finetune": replace(_DEFAULT, training=_HUGGING_FACE_FINETUNING),
    "text": _TEXT,
    "gpt-small": _GPT_SMALL,
    "masked": _MASKED,
    **TASKS,
}

PURPOSES = {
    "default": "pretrain on a text, with questions mixed in or not",
    "default-finetune": "finetune a run of default on questions",
    "questions": "train questions",
    "finetune": "finetune a run whose recipe names no other",
    "course": "pretrain as CS224N's assignment 5 does",
    "course-finetune": "finetune a run of course on questions",
    "course-questions": "train questions as that assignment does without pretraining",
    "modern": "pretrain on a text and questions: the birthplaces of real people",
    "demo": "pretrain on the fictional world of regard world",
    "demo-finetune": "finetune a run of demo on questions",
    "demo-questions": "train questions of that world alone",
    "hugging-face-finetune": "finetune an imported Hugging Face model",
    "text": "train text: a small model of any text",
    "gpt-small": "train text: 110 million weights, for a GPU",
    "masked": "pretrain an encoder on masked tokens",
}
"""What each recipe without a task is for; the others are for `regard train NAME`."""


def find_recipe(recipe: Recipe | str, settings: Sequence[str] = ()) -> Recipe:
    """Return a recipe, given by name or as a TOML file, with settings such as model.n_layers=6.

    Raises:
        UserError: there is no such recipe, or a setting is invalid.
    """
    if isinstance(recipe, str):
        if recipe in RECIPES:
            recipe = RECIPES[recipe]
        elif Path(recipe).suffix == ".toml" or exists(recipe):
            recipe = read_recipe(Path(recipe), settings)
        else:
            raise UserError(
                f"--recipe {recipe}: no such recipe or file; {alternatives(recipe, RECIPES)}"
            )
    return override(recipe, settings)
