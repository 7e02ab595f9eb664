"""Runs as transformers models: `import regard.hf` registers them with its Auto classes.

Shapes: b rows, n tokens, m tokens of a source, p tokens that the state has seen, d the width of the
body. Padding may stand on either side of a row, as an attention mask says.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Bool, Float, Int
from tokenizers import processors
from torch import Tensor, nn

from regard.errors import UserError
from regard.models.builders import (
    Classifier,
    LanguageModel,
    MaskedLanguageModel,
    SequenceToSequence,
    TokenClassifier,
)
from regard.models.config import MaskedLMHeadConfig
from regard.runs.recipe import load_recipe, require_run, text_affixes
from regard.runs.run import Run
from regard.runs.transformers_files import MODEL_TYPE, generation_config, transformers_config
from regard.text.template import Affixes, Template
from regard.text.tokenizer import Tokenizer

try:
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
        AutoModelForSeq2SeqLM,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
        AutoTokenizer,
        GenerationConfig,
        GenerationMixin,
        PreTrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerFast,
    )
    from transformers.modeling_outputs import (
        BaseModelOutput,
        CausalLMOutputWithPast,
        MaskedLMOutput,
        Seq2SeqLMOutput,
        SequenceClassifierOutput,
        TokenClassifierOutput,
    )
except ImportError:
    raise UserError(
        "import regard.hf: needs transformers; install it: pip install 'regard[hf]'"
    ) from None

InputIds = Int[Tensor, "b n"]
AttentionMask = Int[Tensor, "b p_plus_n"]
"""1 for real tokens, 0 for padding; of the tokens that the state has seen, too."""


class RegardConfig(PreTrainedConfig):
    """Facts about a run that transformers needs. The run's config.toml holds its configuration."""

    model_type = MODEL_TYPE


class RegardTokenizer(PreTrainedTokenizerFast):
    """The tokenizer of a run, with the template's ids around each text or pair of texts."""

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path, *inputs: Any, **options: Any
    ) -> Self:
        """Load the tokenizer of a run.

        Texts to continue are padded on the left. Text that spells a special token is ordinary text,
        except for masked language models; `split_special_tokens` chooses.

        Raises:
            UserError: the folder is not a run, or is damaged.
        """
        path = Path(pretrained_model_name_or_path)
        recipe = load_recipe(path)
        defaults = {
            "padding_side": "left" if recipe.continues_texts else "right",
            "model_max_length": recipe.max_source_tokens,
            "split_special_tokens": not isinstance(recipe.head, MaskedLMHeadConfig),
        }
        tokenizer: Self = super().from_pretrained(path, *inputs, **{**defaults, **options})
        template = Template(recipe.template, Tokenizer.load(path))
        backend: Any = tokenizer.backend_tokenizer
        backend.post_processor = _post_processor(template, text_affixes(recipe, template))
        types = ["token_type_ids"] if recipe.uses_token_types else []
        tokenizer.model_input_names = ["input_ids", *types, "attention_mask"]
        return tokenizer


def _post_processor(template: Template, outer: Affixes) -> processors.TemplateProcessing:
    """What puts the ids of a template around texts, as `Template.join` does."""
    parts = {
        "begin": outer.prefix,
        "before_first": template.first.prefix,
        "behind_first": template.first.suffix,
        "before_second": template.second.prefix,
        "behind_second": template.second.suffix,
        "end": outer.suffix,
    }
    single = "begin:0 $A:0 end:0"
    pair = "begin:0 before_first:0 $A:0 behind_first:0 before_second:1 $B:1 behind_second:1 end:1"
    name = template.tokenizer.native.id_to_token
    return processors.TemplateProcessing(
        single=_pieces(single, parts),
        pair=_pieces(pair, parts),
        special_tokens=[
            {"id": part, "ids": list(ids), "tokens": [name(i) for i in ids]}
            for part, ids in parts.items()
            if ids
        ],
    )


def _pieces(template: str, parts: dict[str, tuple[int, ...]]) -> list[str]:
    """The pieces of a template without empty parts."""
    return [piece for piece in template.split() if parts.get(piece.partition(":")[0], (0,))]


# Rows


@dataclass(frozen=True, eq=False)
class Rows:
    """Padded rows with their real tokens first, as models here read them."""

    places: Int[Tensor, "b n"]
    """Column that each token comes from."""
    lengths: Int[Tensor, " b"]

    @staticmethod
    def of(ids: InputIds, attention_mask: AttentionMask | None) -> "Rows":
        """Find the real tokens; without a mask, all are. Only the mask's last n columns count."""
        if attention_mask is None:
            whole = torch.full((len(ids),), ids.shape[1], device=ids.device)
            return Rows(torch.arange(ids.shape[1], device=ids.device).expand_as(ids), whole)
        if attention_mask.ndim != 2:
            raise UserError("attention_mask: must have a row per text and a column per token")
        real = attention_mask[:, -ids.shape[1] :].bool()
        return Rows((~real).int().argsort(dim=1, stable=True), real.sum(1))

    @property
    def mask(self) -> Bool[Tensor, "b longest"] | None:
        """True for real tokens, which come first; None where all are real."""
        if int(self.lengths.min()) == self.longest:
            return None
        return torch.arange(self.longest, device=self.places.device) < self.lengths[:, None]

    @property
    def longest(self) -> int:
        """Number of real tokens of the longest row, at least one."""
        return max(int(self.lengths.max()), 1)

    def compact(self, x: Int[Tensor, "b n"]) -> Int[Tensor, "b longest"]:
        """Put the real tokens first, without the columns that hold padding alone."""
        return x.gather(1, self.places)[:, : self.longest]

    def restore(self, hidden: Float[Tensor, "b longest d"]) -> Float[Tensor, "b n d"]:
        """Put the vectors of tokens back into their columns; those of padding mean nothing."""
        columns = self.places.argsort(1).clamp(max=hidden.shape[1] - 1)
        return hidden.gather(1, columns[:, :, None].expand(-1, -1, hidden.shape[2]))


# Decoding states


class DecodingCache:
    """The decoding states of a model, as `generate` of transformers keeps and reorders them."""

    is_compileable = False
    is_croppable = False

    def __init__(self, capacity: int) -> None:
        """States for at most `capacity` tokens per row, made of the first tokens."""
        self.capacity, self.columns = capacity, 0
        self.states: Any = None

    def get_seq_length(self, layer: int = 0) -> int:
        """Number of columns seen, padding included."""
        return self.columns

    def reorder_cache(self, beam_idx: Int[Tensor, " rows"]) -> None:
        """Select rows; one may be taken several times."""
        self.states = self.states.reorder(beam_idx)

    def extend(
        self, body: Any, input_ids: InputIds, attention_mask: AttentionMask | None
    ) -> Float[Tensor, "b n d"]:
        """Hidden states of new tokens.

        Raises:
            UserError: a row has more tokens than the states have capacity for.
        """
        rows = Rows.of(input_ids, attention_mask)
        longest = int((self.states.length + rows.lengths).max())
        if longest > self.capacity:
            raise UserError(
                f"{longest} tokens don't fit: the model's context and max_length leave room for "
                f"{self.capacity}; shorten the prompt or lower max_new_tokens"
            )
        hidden, self.states = body.extend(rows.compact(input_ids), self.states, rows.mask)
        self.columns += input_ids.shape[1]
        return rows.restore(hidden)


# Models


class RunModel(PreTrainedModel):
    """Base of the classes below: the model of a run, loaded as a run."""

    config_class = RegardConfig
    base_model_prefix = "model"
    kind: ClassVar[type[nn.Module]]
    """The class of models here that it wraps."""

    def __init__(self, config: RegardConfig, run: Run) -> None:
        """Wrap the model of a run; `from_pretrained` loads one."""
        super().__init__(config)
        self.model = run.model
        self.context_length = run.recipe.model.context_length

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path, **options: Any
    ) -> Self:
        """Load the run of a folder, in evaluation mode.

        Of the options of transformers, `config`, `dtype`, `device_map` with one device, and
        `trust_remote_code` (for custom mechanisms) are supported.

        Raises:
            UserError: it is not a run, damaged, or of another kind; or an option is unsupported.
        """
        path = Path(pretrained_model_name_or_path)
        config, dtype = options.pop("config", None), _dtype(options)
        device = _device(options.pop("device_map", None))
        trust = bool(options.pop("trust_remote_code", False))
        for name, value in options.items():
            if name not in _HARMLESS and value is not None:
                raise UserError(f"from_pretrained: {name}={value} isn't supported for a run")
        run = Run.load(require_run(path), device=device, trust_code=trust)
        if not isinstance(run.model, cls.kind):
            raise UserError(f"{path}: is no model for {cls.__name__}; {_fitting(run)}")
        derived = transformers_config(run.recipe, run.tokenizer)
        config = RegardConfig(**derived) if config is None else config
        _require_derived(run, config, derived)
        config.name_or_path = str(path)
        model = cls(config, run)
        if model.can_generate():
            settings = generation_config(run.recipe, run.tokenizer)
            model.generation_config = GenerationConfig(**settings)
        if dtype not in (None, model.dtype):  # tables of float64 beside weights of float32 stay
            nn.Module.to(model, dtype)
        loaded: Self = model.train(False)
        return loaded

    def save_pretrained(self, *_: Any, **__: Any) -> None:
        """Raise: a run is saved by its training.

        Raises:
            UserError: names the command that writes a folder for transformers.
        """
        raise UserError(
            "save_pretrained: isn't supported for a run; copy its folder, or write a Hugging Face "
            "model: regard export-hf RUN --out DIR"
        )

    def get_input_embeddings(self) -> nn.Module:
        """Return the embeddings of tokens."""
        body: Any = self.model.body
        stack = body.decoder if isinstance(self.model, SequenceToSequence) else body
        found: nn.Module = stack.embedding
        return found

    def _init_weights(self, module: nn.Module) -> None:
        """Leave all weights as they were loaded."""


class Generating(RunModel, GenerationMixin):
    """Base of what `generate` continues: decoding states take the place of transformers' cache."""

    def _prepare_cache_for_generation(
        self,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, Any],
        generation_mode: Any,
        batch_size: int,
        max_cache_length: int,
    ) -> Any:
        """Put an empty cache among the arguments of the model, unless there is one.

        Raises:
            UserError: another cache is chosen or given.
        """
        if generation_config.cache_implementation not in (None, "dynamic"):
            raise UserError(
                f"cache_implementation={generation_config.cache_implementation}: isn't supported "
                "for a run, which keeps its own decoding states; leave it out"
            )
        given = model_kwargs.get("past_key_values")
        if given is not None and not isinstance(given, DecodingCache):
            raise UserError(
                f"past_key_values: a {type(given).__name__} isn't supported for a run, which keeps "
                "its own decoding states; leave it out"
            )
        if generation_config.use_cache and given is None:
            cache = DecodingCache(min(max_cache_length, self.context_length))
            model_kwargs["past_key_values"] = cache

    def _require_fit(self, rows: Rows) -> None:
        if rows.longest > self.context_length:
            raise UserError(
                f"{rows.longest} tokens don't fit the model's context length of "
                f"{self.context_length}; shorten the text"
            )


class RegardForCausalLM(Generating):
    """A run that continues texts."""

    kind = LanguageModel

    def forward(
        self,
        input_ids: InputIds,
        attention_mask: AttentionMask | None = None,
        token_type_ids: InputIds | None = None,
        past_key_values: DecodingCache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        return_dict: bool | None = None,
    ) -> CausalLMOutputWithPast:
        """Logits of the token after each position, or after the last `logits_to_keep`.

        Token types are ignored.

        Raises:
            UserError: a row is longer than the context.
        """
        if use_cache and past_key_values is None:
            past_key_values = DecodingCache(self.context_length)
        if past_key_values is None:
            rows = Rows.of(input_ids, attention_mask)
            self._require_fit(rows)
            hidden = rows.restore(self.model.body(rows.compact(input_ids)))
        else:
            if past_key_values.states is None:
                states = self.model.init_state(len(input_ids), past_key_values.capacity)
                past_key_values.states = states
            hidden = past_key_values.extend(self.model.body, input_ids, attention_mask)
        logits = self.model.head(hidden[:, -logits_to_keep:])
        cache: Any = past_key_values
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)


@dataclass
class EncodedSource(BaseModelOutput):
    """Sources that a model has read, as its decoder looks at them."""

    memory: Any = None
    rows: int | None = None
    """Number of sources."""


class SourceEncoder(nn.Module):
    """The first half of a sequence-to-sequence model, as `generate` calls it."""

    main_input_name = "input_ids"

    def __init__(self, model: SequenceToSequence) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: InputIds, attention_mask: AttentionMask | None = None, **_: Any
    ) -> EncodedSource:
        """Read sources."""
        rows = Rows.of(input_ids, attention_mask)
        memory = self.model.body.encode(rows.compact(input_ids), rows.lengths)
        return EncodedSource(memory=memory, rows=len(input_ids))


class RegardForSeq2SeqLM(Generating):
    """A run that writes a target while it looks at a source."""

    kind = SequenceToSequence

    def get_encoder(self, modality: str | None = None) -> SourceEncoder:
        """Return what reads sources."""
        return SourceEncoder(self.model)

    def forward(
        self,
        input_ids: Int[Tensor, "b m"] | None = None,
        attention_mask: Int[Tensor, "b m"] | None = None,
        token_type_ids: Int[Tensor, "b m"] | None = None,
        decoder_input_ids: InputIds | None = None,
        decoder_attention_mask: AttentionMask | None = None,
        encoder_outputs: EncodedSource | None = None,
        past_key_values: DecodingCache | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
    ) -> Seq2SeqLMOutput:
        """Logits of the token of the target after each position of `decoder_input_ids`.

        `encoder_outputs` are sources that were read before, each for as many consecutive rows.
        Token types are ignored.

        Raises:
            UserError: a row is longer than the context, or there are no targets.
        """
        if decoder_input_ids is None:
            raise UserError("decoder_input_ids: missing; give the beginnings of the targets")
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids, attention_mask)
        cache = past_key_values
        if cache is None:
            cache = DecodingCache(self.context_length)
        if cache.states is None:
            cache.states = self._init_state(encoder_outputs, len(decoder_input_ids), cache.capacity)
        hidden = cache.extend(self.model.body, decoder_input_ids, decoder_attention_mask)
        kept: Any = cache if use_cache or past_key_values is not None else None
        return Seq2SeqLMOutput(logits=self.model.head(hidden), past_key_values=kept)

    def _init_state(self, source: EncodedSource, rows: int, capacity: int) -> Any:
        """States before the first token, of as many rows; beams share the memory of a source."""
        sources = source.rows or rows
        states = self.model.body.init_state(sources, capacity, source.memory)
        each = rows // sources
        return (
            states if each == 1 else states.reorder(torch.arange(rows, device=self.device) // each)
        )


class RegardForMaskedLM(RunModel):
    """A run that scores masked tokens."""

    kind = MaskedLanguageModel

    def forward(
        self,
        input_ids: InputIds,
        attention_mask: AttentionMask | None = None,
        token_type_ids: InputIds | None = None,
        return_dict: bool | None = None,
    ) -> MaskedLMOutput:
        """Logits of the token that belongs at each position."""
        rows = Rows.of(input_ids, attention_mask)
        types = _token_types(self.model.body, rows, token_type_ids)
        hidden = self.model.body(rows.compact(input_ids), rows.lengths, *types)
        return MaskedLMOutput(logits=self.model.head(rows.restore(hidden)))


class RegardForSequenceClassification(RunModel):
    """A run that labels texts."""

    kind = Classifier

    def forward(
        self,
        input_ids: InputIds,
        attention_mask: AttentionMask | None = None,
        token_type_ids: InputIds | None = None,
        return_dict: bool | None = None,
    ) -> SequenceClassifierOutput:
        """Logits of the labels."""
        rows = Rows.of(input_ids, attention_mask)
        types = _token_types(self.model.body, rows, token_type_ids)
        return SequenceClassifierOutput(
            logits=self.model(rows.compact(input_ids), rows.lengths, *types)
        )


class RegardForTokenClassification(RunModel):
    """A run that labels the tokens of texts."""

    kind = TokenClassifier

    def forward(
        self,
        input_ids: InputIds,
        attention_mask: AttentionMask | None = None,
        token_type_ids: InputIds | None = None,
        return_dict: bool | None = None,
    ) -> TokenClassifierOutput:
        """Logits of the labels at each position. Token types are ignored."""
        rows = Rows.of(input_ids, attention_mask)
        logits = self.model(rows.compact(input_ids), rows.lengths)
        return TokenClassifierOutput(logits=rows.restore(logits))


def _token_types(body: Any, rows: Rows, token_type_ids: InputIds | None) -> tuple[Tensor, ...]:
    """The argument of a body that has embeddings of token types; of others, nothing."""
    if token_type_ids is None or getattr(body, "token_type_embedding", None) is None:
        return ()
    return (rows.compact(token_type_ids),)


# Options of from_pretrained

_HARMLESS = frozenset(
    {
        "_from_auto",
        "_from_pipeline",
        "_commit_hash",
        "adapter_kwargs",
        "attn_implementation",
        "cache_dir",
        "code_revision",
        "force_download",
        "local_files_only",
        "low_cpu_mem_usage",
        "proxies",
        "revision",
        "subfolder",
        "token",
        "use_safetensors",
        "weights_only",
    }
)
"""Options that concern downloads, or how transformers reads its own files."""


def _dtype(options: dict[str, Any]) -> torch.dtype | None:
    """The type that is chosen for the weights, if one is."""
    old, chosen = options.pop("torch_dtype", None), options.pop("dtype", None)
    name = chosen or old or "auto"
    if isinstance(name, torch.dtype):
        return name
    if name == "auto":
        return None
    found = getattr(torch, str(name), None)
    if not isinstance(found, torch.dtype):
        raise UserError(f"from_pretrained: dtype={name} is no type of torch; try float32")
    return found


def _device(device_map: Any) -> torch.device:
    """The one device of a map; the processor if there is none."""
    devices = device_map.values() if isinstance(device_map, dict) else [device_map]
    chosen = {"cpu" if device is None else device for device in devices}
    try:
        (device,) = chosen
        return torch.device(device)
    except (ValueError, RuntimeError, TypeError):
        raise UserError(
            f"from_pretrained: device_map={device_map} isn't supported for a run; name one device, "
            'such as "cuda"'
        ) from None


def _require_derived(run: Run, config: Any, derived: dict[str, Any]) -> None:
    """Raise unless config.json, or arguments in its place, say what config.toml says."""
    if getattr(config, "model_type", None) != MODEL_TYPE:
        raise UserError(f"{run.path}: config={type(config).__name__} is for another model")
    expected = RegardConfig(**derived)
    for name in derived:
        found, own = getattr(config, name, None), getattr(expected, name)
        if found != own:
            raise UserError(
                f"{run.path / 'config.json'}: or an argument says {name} = {found}, but "
                f"config.toml makes it {own}; config.json is derived: put it back, leave the "
                "argument out"
            )


def _fitting(run: Run) -> str:
    """The class that loads a run."""
    for auto, kind in _CLASSES.items():
        if isinstance(run.model, kind.kind):
            return f"load it by {auto.__name__}"
    head = run.recipe.head.__struct_config__.tag
    return f"transformers has no class for head.kind={head}; load it by regard.load"


_CLASSES: dict[Any, type[RunModel]] = {
    AutoModelForCausalLM: RegardForCausalLM,
    AutoModelForSeq2SeqLM: RegardForSeq2SeqLM,
    AutoModelForMaskedLM: RegardForMaskedLM,
    AutoModelForSequenceClassification: RegardForSequenceClassification,
    AutoModelForTokenClassification: RegardForTokenClassification,
}
"""The class of each Auto class."""

AutoConfig.register(MODEL_TYPE, RegardConfig, exist_ok=True)
AutoTokenizer.register(RegardConfig, fast_tokenizer_class=RegardTokenizer, exist_ok=True)
for _auto, _kind in _CLASSES.items():
    _auto.register(RegardConfig, _kind, exist_ok=True)
