"""A run: a folder with a model, its configuration and its tokenizer.

config.toml        the recipe, complete
origin.json        how it was made: stage, inputs and their fingerprint, parent
tokenizer.json     text ↔ ids, in the format of Hugging Face tokenizers
tokenizer_config.json  the special tokens
config.json, generation_config.json, modeling_regard.py  what transformers needs, derived from
                   config.toml
code/              the files of custom mechanisms
model.safetensors  the weights; its metadata holds the tokenizer's fingerprint
metrics.jsonl      loss and speed, a line every few steps
checkpoints/N/     the state after N steps, for resuming
report.html        results of an evaluation
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import safe_open
from torch import Tensor

import regard
from regard.config import code_paths, file_name, map_kinds
from regard.data.batch import RowFormat
from regard.environment import ExecutionEnvironment, Precision
from regard.errors import NonFiniteError, UserError
from regard.files import fingerprint_of, pack_tensors, read_table, read_tensors, write_file
from regard.models.builders import LanguageModel, Model, make_model
from regard.models.ngrams import NgramEmbedding
from regard.models.tensors import merged_tensors, saved_tensors
from regard.runs.code import FOLDER, code_hashes, copy_code
from regard.runs.recipe import Recipe, answers_questions, load_recipe, recipe_to_toml, text_affixes
from regard.runs.transformers_files import (
    TOKENIZER_CONFIG,
    TRANSFORMERS_FILES,
    transformers_files,
)
from regard.tasks.examples import Example
from regard.tasks.rows import HELD_OUT
from regard.text.corpus import Document
from regard.text.packed import FILES as CORPUS_FILES
from regard.text.template import Affixes, Template
from regard.text.tokenizer import FILES as TOKENIZER_FILES
from regard.text.tokenizer import Tokenizer, locate_unknown


@dataclass(eq=False)
class Run:
    """A model with its recipe and tokenizer.

    >>> from pathlib import Path
    >>> run: regard.Run = regard.Run.load(Path("tiny"))
    >>> run.tokenizer.decode(run.tokenizer.encode("Ada was born in"))
    'Ada was born in'
    """

    path: Path
    recipe: Recipe
    tokenizer: Tokenizer
    model: Model
    origin: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def new(path: Path, recipe: Recipe, tokenizer: Tokenizer, origin: dict[str, Any]) -> "Run":
        """Make a run with an untrained model, initialized from the recipe's seed."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(recipe.seed)
            model = make_model(recipe.model, recipe.head, recipe.vocabulary_size(tokenizer))
        if code_paths(msgspec.to_builtins(recipe)):
            origin = origin | {"code": code_hashes(recipe)}
        return Run(path, recipe, tokenizer, model, origin)

    @staticmethod
    def load(path: Path, *, device: torch.device | None = None, trust_code: bool = False) -> "Run":
        """Load the run of a folder, in evaluation mode; with `trust_code`, its code is trusted.

        Raises:
            UserError: something is missing, damaged or inconsistent.
        """
        recipe = load_recipe(path, trust_code=trust_code)
        if not (path / "model.safetensors").is_file():
            raise UserError(
                f"{path}: has no weights yet; repeat its training command with --resume"
            )
        named = path if path.name else path.absolute()  # "." has no name
        run = Run.new(named, recipe, Tokenizer.load(path), read_table(path / "origin.json"))
        load_weights(path / "model.safetensors", run)
        run.model.to(device).eval()
        return run

    @property
    def language_model(self) -> LanguageModel:
        """The model, as a causal language model.

        Raises:
            UserError: it isn't one.
        """
        if isinstance(self.model, LanguageModel):
            return self.model
        family, head = (
            part.__struct_config__.tag for part in (self.recipe.model, self.recipe.head)
        )
        raise UserError(
            f"{self.path}: this needs a causal language model, not a model of kind "
            f"{family} with head {head}; choose a run with model.kind=decoder"
        )

    @property
    def is_trained_on_packed(self) -> bool:
        """Whether it was trained on packed corpora."""
        return "packed" in self.origin

    @cached_property
    def template(self) -> Template:
        """The recipe's template in the tokenizer's ids."""
        return Template(self.recipe.template, self.tokenizer)

    def with_history(self, turns: Sequence[tuple[str, str]]) -> "Run":
        """Return this run with earlier questions and answers before each question.

        Raises:
            UserError: it isn't a causal model trained on questions, or a text can't be encoded.
        """
        if self.recipe.task is not None or not self.answers_questions:
            raise UserError(
                f"{self.path}: isn't trained on questions, so it continues no conversation; train "
                "it with regard finetune"
            )
        _ = self.language_model
        run = replace(self)
        run.template = self.template.with_history(turns)
        return run

    @cached_property
    def text_affixes(self) -> Affixes:
        """The ids around a single text in the model's input."""
        return text_affixes(self.recipe, self.template)

    def encode(self, text: str, second: str | None = None) -> tuple[list[int], list[int]]:
        """Return the row that the model reads for one text or two, and the token type of each id.

        Raises:
            UserError: a text can't be encoded.
        """
        with locate_unknown("the text", self.tokenizer):
            parts = [self.tokenizer.encode(part) for part in (text, second) if part is not None]
        return self.template.join(self.text_affixes, *parts)

    @property
    def row_format(self) -> RowFormat:
        """Format of rows with a single text each."""
        padding, affixes = self.tokenizer.special.padding, self.text_affixes
        return RowFormat(self.recipe.model.context_length, padding, affixes.prefix, affixes.suffix)

    @property
    def max_text_tokens(self) -> int:
        """Longest text that the model reads, in tokens, without the ids around it."""
        return self.recipe.max_source_tokens - len(self.text_affixes)

    @property
    def answers_questions(self) -> bool:
        """Whether the model was trained to answer: on questions, or for a task with texts."""
        return answers_questions(self.recipe, self.origin)

    def save_description(self) -> None:
        """Write everything except the weights."""
        self.path.mkdir(parents=True, exist_ok=True)
        if "code" in self.origin:
            copy_code(self.recipe, self.path)
        self.tokenizer.save(self.path, **TOKENIZER_CONFIG)
        for name, content in transformers_files(self.recipe, self.tokenizer).items():
            write_file(self.path / name, content)
        origin = json.dumps(self.origin, indent=1, ensure_ascii=False)
        write_file(self.path / "origin.json", origin.encode())
        write_file(self.path / "config.toml", recipe_to_toml(self.recipe).encode())

    def save_weights(self) -> None:
        """Write the weights."""
        write_file(self.path / "model.safetensors", pack_weights(self))

    def save_new(self, folder: Path) -> None:
        """Write the run to another, new folder, which becomes its own later."""
        saved = replace(self, path=folder)
        saved.save_weights()
        saved.save_description()

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    def environment(self, precision: Precision = "float32") -> ExecutionEnvironment:
        """Return the execution environment of the model's device, with a precision."""
        return ExecutionEnvironment.choose(str(self.device), precision)

    @property
    def n_parameters(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def n_hashed_parameters(self) -> int:
        """Number of parameters in hashed tables of n-grams."""
        found = (m for m in self.model.modules() if isinstance(m, NgramEmbedding))
        return sum(one.tables.weight.numel() for one in found)


def ancestors(path: Path, origin: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the provenance of a run's ancestors, the nearest first.

    If an ancestor isn't in its folder, it is searched at the same place relative to the run's: both
    may have been moved together.
    """
    now = path.absolute()
    before = origin.get("run_folder", str(now))
    return [one | {"run": _moved(one, before, now)} for one in origin.get("ancestors", ())]


def _moved(ancestor: Mapping[str, Any], before: str, now: Path) -> str:
    folder = str(ancestor["run"])
    try:
        there = os.path.normpath(now / os.path.relpath(folder, before))
        moved = is_missing(ancestor) and not is_missing({**ancestor, "run": there})
        return there if moved else folder
    except (ValueError, UserError):  # on another drive of Windows; a damaged origin.json
        return folder


def is_missing(ancestor: Mapping[str, Any]) -> bool:
    """Return whether an ancestor's folder is gone, or holds a run of other data by now."""
    origin = Path(ancestor["run"], "origin.json")
    if origin.is_file():
        return read_table(origin).get("fingerprint") != ancestor.get("fingerprint")
    return not origin.parent.exists() and not ancestor["run"].startswith("hf:")


def load(
    path: str | Path,
    *,
    device: str = "auto",
    threads: int | None = None,
    trust_code: bool = False,
) -> Run:
    """Load the run in a folder; with `trust_code`, custom code in it may come from elsewhere."""
    environment = ExecutionEnvironment.choose(device, threads=threads)
    return Run.load(Path(path), device=environment.device, trust_code=trust_code)


def pack_weights(run: Run) -> bytes:
    """Return the weights as a safetensors file with the fingerprints of tokenizer and model."""
    return pack_run_tensors(run, merged_tensors(run.model))


def pack_run_tensors(run: Run, tensors: dict[str, Tensor]) -> bytes:
    """Return tensors as a safetensors file with the fingerprints of tokenizer and model."""
    made_for = msgspec.json.encode(_made_for(run)).decode()
    return pack_tensors(tensors, {"made_for": made_for})


def require_finite(model: Model, where: Path) -> None:
    """Raise for damaged weights, which are from `where`.

    Raises:
        NonFiniteError: names the first that is NaN or infinite.
    """
    for name, weights in saved_tensors(model).items():
        if not weights.isfinite().all():
            raise NonFiniteError(f"{where}: {name} is NaN or infinite: the weights are damaged")


def load_weights(path: Path, run: Run) -> None:
    """Fill a run's model with the weights of a file.

    Raises:
        UserError: the file is damaged, or made for another tokenizer or another model.
    """
    tensors = read_tensors(path)
    trained, here = _metadata(path), _made_for(run)
    if trained["tokenizer"] != here["tokenizer"]:
        raise UserError(
            f"{path}: was trained with tokenizer {trained['tokenizer']}, but "
            f"{run.path / 'tokenizer.json'} is tokenizer {here['tokenizer']}; "
            "put back the tokenizer of these weights"
        )
    parameters = saved_tensors(run.model)
    for name in sorted(parameters.keys() | tensors.keys()):
        wanted = parameters[name].shape if name in parameters else None
        found = tensors[name].shape if name in tensors else None
        if wanted != found:
            raise UserError(
                f"{path}: {name} has shape {shown_shape(found)}, but config.toml requires "
                f"{shown_shape(wanted)}; put back the configuration of these weights"
            )
    if trained != here:
        raise UserError(
            f"{path}: was trained as {trained}, but config.toml says {here}; "
            "put back the configuration of these weights"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def describe_origin(
    stage: str, corpus: Sequence[Document], questions: Sequence[Example]
) -> dict[str, Any]:
    """Return the origin of a run: its stage, and inputs, fingerprint and sizes of its data."""
    places = [document.where for document in corpus] + [question.where for question in questions]
    files = dict.fromkeys(re.sub(r":\d+$", "", place) for place in places)
    return {
        "regard": regard.__version__,
        "stage": stage,
        "inputs": [str(Path(name).resolve()) for name in files if Path(name).is_file()],
        "fingerprint": data_fingerprint(corpus, questions),
        "documents": len(corpus),
        "questions": len(questions),
    }


def data_fingerprint(corpus: Sequence[Document], questions: Sequence[Example]) -> str:
    """Return a hash of the texts of documents, questions and answers."""
    pairs = [[*q.asked, *([] if q.second is None else [q.second]), q.answer] for q in questions]
    return fingerprint_of(msgspec.json.encode([[document.text for document in corpus], pairs]))


def _made_for(run: Run) -> dict[str, Any]:
    """Return everything that the weights depend on, as plain values."""
    model, head = run.recipe.model, run.recipe.head
    code = run.origin.get("code")
    return {
        "tokenizer": run.tokenizer.fingerprint,
        "template": _plain(run.recipe.template),
        "model": map_kinds(_plain(msgspec.to_builtins(model)), file_name),
        "head": _plain(head),
    } | ({"code": code} if code else {})


def _plain(value: Any) -> Any:
    """Return a value after a round trip through JSON."""
    return json.loads(msgspec.json.encode(value), object_hook=_without_nulls)


def _without_nulls(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are set: older weights lack options that were added later."""
    return {name: value for name, value in values.items() if value is not None}


def _metadata(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
    try:
        made_for = json.loads(metadata.get("made_for", ""), object_hook=_without_nulls)
        return {name: made_for[name] for name in made_for if made_for["tokenizer"]}
    except (json.JSONDecodeError, KeyError, TypeError):
        raise UserError(
            f"{path}: doesn't say what it was made for; only weights of a run can be loaded"
        ) from None


def shown_shape(shape: torch.Size | None) -> str:
    """Return a shape as text."""
    return "no shape (there is none)" if shape is None else "×".join(map(str, shape))


def require_free(path: Path) -> None:
    """Raise unless a new run can be written to a folder, which may hold the first files of a run.

    Raises:
        UserError: it holds something else.
    """
    if path.exists() and not (path.is_dir() and all(map(_is_first, path.iterdir()))):
        raise UserError(f"{path}: exists but is not a run folder; choose another --out")


def _is_first(path: Path) -> bool:
    """Return whether a file or folder is one of the first of a run, or what a kill has left of one.

    They may be deleted or replaced, so those of others don't count.
    """
    if path.name == "tokens" and path.is_dir() and not path.is_symlink():
        inside = (inner.name for inner in path.iterdir())
        return all(name in CORPUS_FILES or name.endswith(".partial") for name in inside)
    if path.name.endswith(".partial"):
        return path.is_file() or path.name == ".tokens.partial"
    if path.name in {*TOKENIZER_FILES, *TRANSFORMERS_FILES, "origin.json"}:
        settings = path.with_name("tokenizer_config.json")  # written before the others
        ours = TOKENIZER_CONFIG["tokenizer_class"].encode()
        return settings.is_file() and ours in settings.read_bytes()
    return path.name in {FOLDER, "tokens", ".tokens.lock", HELD_OUT}
