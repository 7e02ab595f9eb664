"""The configuration of a run: everything that a recipe decides."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import Meta

from regard.config import (
    MOST_STEPS,
    Config,
    Count,
    Fraction,
    Positive,
    Probability,
    Seed,
    code_paths,
    convert,
    map_kinds,
    parse_toml,
    to_toml,
)
from regard.errors import UserError, nearest, some
from regard.files import decode_json, read_text
from regard.models.config import (
    CausalConfig,
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    ModelConfig,
    RecurrentEncoderDecoderConfig,
)
from regard.models.head_config import HeadConfig, LMHeadConfig
from regard.runs import code
from regard.tasks.probes import ProbeConfig
from regard.tasks.registry import TaskConfig
from regard.tasks.tables import TableConfig
from regard.text.config import BytePairsConfig, TokenizerConfig
from regard.text.template import Affixes, Template, TemplateConfig
from regard.text.tokenizer import Tokenizer

FORMAT = 2
"""Version of the configuration in run folders; incremented when older ones can't be read."""

Documents = Literal["auto", "lines", "files", "paragraphs", "records"]
Rate = Annotated[float, Meta(gt=0, le=1000)]
Words = Annotated[int, Meta(ge=0, le=100)]


class DataConfig(Config, frozen=True):
    """How the corpus is read."""

    documents: Documents = "lines"
    """A document: a line of a file, a whole file, a paragraph (blank lines separate them), or a
    record of a JSONL or Parquet file; auto: detected. Whole files are read in windows."""
    blank_lines: bool = False
    """Whether blank lines are documents, too, and the text after the last line end, even empty."""
    ascii_questions: bool = False
    """Whether all letters that aren't ASCII are removed from the questions to train on."""
    validation: Annotated[float, Meta(ge=0, lt=1)] = 0.02
    """Share of the documents (or questions) that is held out to measure the validation loss."""
    packing: bool = True
    """Packed corpora: whether a row holds several documents, without attention between them;
    otherwise each row holds one, and is padded."""
    table: TableConfig = TableConfig()
    """How tables and records are read."""


class ObjectiveConfig(Config, frozen=True):
    """Shares of the pretraining objectives among the batches."""

    next_token: Fraction = 1.0
    """Share of next-token prediction on documents."""
    span_corruption: Fraction = 0.0
    """Share of span corruption on documents: prefix, mask, suffix, mask, span."""
    masked_tokens: Fraction = 0.0
    """Share of masked language modeling on documents (BERT); for an encoder."""
    masked_autoencoding: Fraction = 0.0
    """Share of masked autoencoding on documents; for an encoder."""
    masking: Annotated[float, Meta(gt=0, le=1)] = 0.15
    """Share of tokens that are masked."""
    clozes: Fraction = 0.0
    """Share of clozes: a phrase of a document is predicted from the words before it."""
    cloze_words: tuple[Words, Words] = (0, 4)
    """Fewest and most words before the phrase in a cloze, drawn each time."""
    cloze_relevance: Annotated[float, Meta(ge=0, le=100)] = 0.0
    """Additional occurrences in an epoch of a cloze whose phrase surely answers a question; for
    others, times the probability that it does, estimated from the questions."""
    questions: Fraction = 0.0
    """Share of questions with answers; requires --questions."""
    question_batch: Annotated[int, Meta(ge=1)] | None = None
    """Questions or clozes per step. Default: batch."""

    def __post_init__(self) -> None:
        if not self.total:
            raise ValueError("all shares are 0: give one of them a share above 0")
        if self.cloze_words[0] > self.cloze_words[1]:
            raise ValueError("cloze_words: give the fewest first, then the most")
        if self.cloze_relevance and not (self.clozes and self.questions):
            raise ValueError(
                "cloze_relevance: is estimated from questions; give clozes and questions shares "
                "above 0, or set cloze_relevance=0"
            )

    @property
    def total(self) -> float:
        """Sum of all shares."""
        return self.from_the_left + self.from_both_sides

    @property
    def from_the_left(self) -> float:
        """Sum of the shares of causal objectives."""
        return self.next_token + self.span_corruption + self.clozes + self.questions

    @property
    def from_both_sides(self) -> float:
        """Sum of the shares of objectives for encoders."""
        return self.masked_tokens + self.masked_autoencoding


class AdamWConfig(Config, frozen=True, tag_field="kind", tag="adamw"):
    """AdamW (Loshchilov & Hutter, 2019)."""

    betas: tuple[Probability, Probability] = (0.9, 0.95)
    """Decay of the running means of the gradient and of its square."""
    weight_decay: Annotated[float, Meta(ge=0)] = 0.1
    """Decay of the weight matrices; embeddings, norms and biases have none."""


class MuonConfig(Config, frozen=True, tag_field="kind", tag="muon"):
    """Muon for the weight matrices of layers (Jordan et al., 2024), AdamW for other parameters."""

    muon_lr: Rate = 0.02
    """Learning rate of the matrices; lr applies to other parameters."""
    momentum: Probability = 0.95
    """Decay of the running sum of gradients."""
    betas: tuple[Probability, Probability] = (0.9, 0.95)
    """The betas of AdamW."""
    weight_decay: Annotated[float, Meta(ge=0)] = 0.1
    """Decay of the matrices of the layers; embeddings, head, norms and biases have none."""


OptimizerConfig: TypeAlias = AdamWConfig | MuonConfig


class CosineConfig(Config, frozen=True, tag_field="kind", tag="cosine"):
    """Linear warmup, then half a cosine to the last step."""

    warmup: Fraction = 0.05
    """Share of the steps for warmup."""
    final: Fraction = 0.1
    """Final learning rate, as a factor of lr."""


class MinGPTConfig(Config, frozen=True, tag_field="kind", tag="mingpt"):
    """max(final, ½(1 + cos πp)) with p = positions seen / positions, as in Karpathy's minGPT.

    If training continues beyond p = 1, the rate rises again.
    """

    positions: Annotated[int, Meta(ge=1)]
    """Number of positions, including padding, at which the cosine is lowest."""
    final: Fraction = 0.1
    """Lowest learning rate, as a factor of lr."""


ScheduleConfig: TypeAlias = CosineConfig | MinGPTConfig


class LoRAConfig(Config, frozen=True):
    """Low-rank adaptation (Hu et al., 2021)."""

    rank: Positive = 8
    """Rank r of the update B A of a weight matrix."""
    alpha: Annotated[float, Meta(gt=0, le=1e6)] = 16.0
    """Scaling: the update is multiplied by alpha / rank."""
    targets: tuple[str, ...] = ()
    """Names of the linear layers to adapt, such as qkv_proj. Default: all of the body."""


class TrainingConfig(Config, frozen=True):
    """Steps, batches, optimizer and learning rate."""

    alternatives: ClassVar = frozenset({"epochs", "steps"})

    epochs: Positive | None = None
    """Passes over the data; excludes steps."""
    steps: Annotated[int, Meta(ge=1, le=MOST_STEPS)] | None = None
    """Optimizer steps; excludes epochs."""
    batch: Positive = 64
    """Rows per step."""
    accumulation: Positive = 1
    """Number of micro-batches per step, to save memory."""
    shuffle: bool = True
    """Whether the data is shuffled in each epoch."""
    lr: Rate = 1e-3
    """Highest learning rate."""
    schedule: ScheduleConfig = CosineConfig()
    """Learning-rate schedule."""
    max_grad_norm: Annotated[float, Meta(gt=0)] = 1.0
    """Largest norm of the gradient; inf: no limit."""
    optimizer: OptimizerConfig = AdamWConfig()
    """The optimizer."""
    log_every: Positive = 20
    """Steps between lines of metrics.jsonl."""
    checkpoint_every: Positive = 500
    """Steps between checkpoints, which measure the validation loss."""
    patience: Count = 0
    """Stop after this many checkpoints without a better validation loss; 0: never."""
    freeze: Literal["body", "embeddings"] | None = None
    """Parameters of the start (--from) that aren't trained; none: all are trained."""
    gradient_checkpointing: bool = False
    """Whether activations of Transformer layers are recomputed in the backward pass, to save
    memory."""
    param_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights and of the state of the optimizer; saved weights have it too."""
    lora: LoRAConfig | None = None
    """Low-rank adaptation of the start (--from), whose body isn't trained otherwise."""

    @property
    def changes_model(self) -> bool:
        """Whether training freezes, adapts, checkpoints or converts parts of the model."""
        return bool(
            self.freeze or self.lora or self.gradient_checkpointing or self.param_dtype != "float32"
        )

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give either epochs or steps")
        if self.freeze and self.lora:
            raise ValueError("lora freezes the body already: leave freeze out")


class Recipe(Config, frozen=True):
    """Complete configuration of a run.

    >>> from regard.models.config import DecoderConfig
    >>> regard.Recipe(model=DecoderConfig(n_layers=2)).model.n_layers
    2
    """

    seed: Seed = 0
    """Seed of weights, data order, corruption and dropout."""
    task: TaskConfig | None = None
    """Task of `regard train`; none for training on text or questions."""
    data: DataConfig = DataConfig()
    """How the corpus is read."""
    tokenizer: TokenizerConfig = BytePairsConfig()
    """The tokenizer."""
    template: TemplateConfig = TemplateConfig()
    """Special tokens and fixed texts around each text."""
    model: ModelConfig = DecoderConfig()
    """The body of the model."""
    head: HeadConfig = LMHeadConfig()
    """The output head."""
    objective: ObjectiveConfig = ObjectiveConfig()
    """The objective of training on documents."""
    training: TrainingConfig = TrainingConfig(epochs=20)
    """The training."""
    finetuning: str = "finetune"
    """Recipe (a name or a TOML file) whose [training] is the default for training that begins with
    a run of this one (finetune, --from)."""

    @property
    def continues_texts(self) -> bool:
        """Whether the model is a causal language model."""
        return isinstance(self.model, CausalConfig) and isinstance(self.head, LMHeadConfig)

    @property
    def has_source(self) -> bool:
        """Whether the model is sequence-to-sequence."""
        return isinstance(self.model, EncoderDecoderConfig | RecurrentEncoderDecoderConfig)

    @property
    def max_source_tokens(self) -> int:
        """Longest input in tokens; of a sequence-to-sequence model, the longest source."""
        reader = self.model.encoder if isinstance(self.model, EncoderDecoderConfig) else self.model
        return reader.context_length

    @property
    def uses_token_types(self) -> bool:
        """Whether the model has token type embeddings."""
        return isinstance(self.model, EncoderConfig) and self.model.n_token_types > 1

    def vocabulary_size(self, tokenizer: Tokenizer) -> int:
        """Return the number of embeddings of the model; some may belong to no token."""
        size: int | None = getattr(self.tokenizer, "vocab_size", None)
        return size or tokenizer.size


def answers_questions(recipe: Recipe, origin: Mapping[str, Any]) -> bool:
    """Return whether a run is trained to answer: on questions, or for a task with texts."""
    if recipe.task is None:
        return bool(origin.get("questions"))
    return not isinstance(recipe.task, ProbeConfig)


def text_affixes(recipe: Recipe, template: Template) -> Affixes:
    """Return the ids around a single text in a model's input.

    A text that a model may continue has no suffix.
    """
    if recipe.has_source:
        return template.source
    if not recipe.continues_texts:
        return template.prompt
    # Windows begin anywhere; a plan replaces auto by what it detects.
    bare = recipe.data.documents in {"files", "auto"} or isinstance(recipe.task, ProbeConfig)
    return Affixes() if bare else Affixes(template.document.prefix)


def read_recipe(path: Path, named: Sequence[str] = ()) -> Recipe:
    """Read a recipe written by a user; `format` may be absent.

    Code that it names is trusted if the settings `named` name it too.

    Raises:
        UserError: the file can't be read, isn't TOML, or a field is unknown or invalid; or its
            code isn't trusted.
    """
    values = {"format": FORMAT} | parse_toml(read_text(path), where=str(path))
    if (path.parent / "origin.json").is_file():  # a run's, with its code
        values = _with_code(values, path.parent)
    else:
        code.require_trusted(values, where=str(path), named=named)
    return _recipe(values, path)


def load_recipe(run: Path, *, trust_code: bool = False) -> Recipe:
    """Read the recipe of a run folder; with `trust_code`, its code is trusted from now on.

    Raises:
        UserError: it is missing, of another format, or damaged; or its code isn't trusted.
    """
    path = require_run(run) / "config.toml"
    values = parse_toml(read_text(path), where=str(path))
    return _recipe(_with_code(values, run, trust_code=trust_code), path)


def _with_code(values: dict[str, Any], run: Path, *, trust_code: bool = False) -> dict[str, Any]:
    """Return the values of a run with the paths of its code, after checking that code."""
    if not code_paths(values):
        return values
    if trust_code:
        code.trust_code(run)
    try:
        origin = decode_json((run / "origin.json").read_bytes(), dict[str, Any])
    except (OSError, ValueError):
        origin = {}
    located: dict[str, Any] = map_kinds(values, lambda kind: str(run / code.FOLDER / kind))
    code.check_code(located, origin.get("code", {}))
    return located


def require_run(run: Path, *, or_hugging_face: bool = False) -> Path:
    """Return the path of a run folder.

    Raises:
        UserError: it isn't one; suggests the nearest run, and `hf:` if that is possible too.
    """
    if not (run / "config.toml").is_file():
        raise UserError(f"{run}: is not a run folder: {_what_is_there(run, or_hugging_face)}")
    return run


def _what_is_there(place: Path, or_hugging_face: bool) -> str:
    """Return why a path isn't a run folder, and what to give instead."""
    folder = Path(str(place).removeprefix("hf:"))
    if folder != place and (folder / "config.toml").is_file():
        return f"write {folder}, without hf:"
    if (folder / "sweep.json").is_file():
        return f"it is a comparison; show it by regard compare {folder}, or name a run in its cells"
    is_theirs = (folder / "config.json").is_file()
    reason = "it has no config.toml" if folder.exists() else "it doesn't exist"
    if is_theirs and not or_hugging_face:
        return f"{reason}; import a Hugging Face model by regard import-hf {folder} --out NEW"
    around = place if place.is_dir() else place.parent
    runs = {found.parent.name: found.parent for found in around.glob("*/config.toml")}
    if (near := nearest(place.name, runs)) and not is_theirs:
        return f"{reason}; did you mean {runs[near]}?"
    if runs and not is_theirs:
        reason += f"; runs there: {some(sorted(map(str, runs.values())), 5)}"
    if or_hugging_face and (is_theirs or not place.exists()):
        reason += f"; give a run folder or, for a Hugging Face model, write hf:{place}"
    return reason


def recipe_to_toml(recipe: Recipe) -> str:
    """Return the content of a run's config.toml."""
    return f"format = {FORMAT}\n{to_toml(recipe)}"


def _recipe(values: dict[str, Any], path: Path) -> Recipe:
    if (found := values.pop("format", None)) != FORMAT:
        shown = "missing" if found is None else found
        raise UserError(
            f"{path}: format is {shown}, expected {FORMAT}: written by another version of Regard"
        )
    if isinstance(model := values.get("model"), dict):
        model.setdefault("kind", "decoder")
    return convert(values, Recipe, where=str(path))
