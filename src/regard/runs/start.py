"""Runs that begin with the weights of another: the start of a training, or a conversion."""

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from regard.attention import Attention
from regard.attention.gating import Gating
from regard.attention.norm import RMSNorm, ZeroCenteredRMSNorm
from regard.config import Config, override
from regard.errors import UserError
from regard.files import fingerprint_of, held_alone, new_folder, require_new
from regard.models.config import EncoderDecoderConfig, ModelConfig, TransformerConfig
from regard.models.head_config import with_labels
from regard.models.tensors import saved_tensors
from regard.runs.recipe import Recipe, TrainingConfig
from regard.runs.recipes import find_recipe
from regard.runs.run import Run, ancestors, pack_weights, shown_shape
from regard.tasks.rows import HELD_OUT
from regard.text.packed import is_packed, link_corpus

CONVERSION = "conversion"
"""Stage of a converted run, also after `regard convert --steps` has trained it on a text."""


def begin_with(start: Run, run: Run) -> None:
    """Copy the weights of `start` to an untrained run, and record them in its origin.

    Tensors that `start` lacks stay as they are drawn by the recipe's seed.

    Raises:
        UserError: a tensor of the body has another shape.
    """
    new, dropped = _copy_weights(start, run)
    changed = {"new_tensors": new, "dropped_tensors": dropped}
    found = {name: tensors for name, tensors in changed.items() if tensors}
    run.origin = run.origin | parent_origin(start, run.path) | found


def parent_origin(start: Run, path: Path) -> dict[str, Any]:
    """Return the facts about the parent `start`, for the origin of a run in a folder."""
    return {
        "parent": str(start.path),
        "parent_weights": fingerprint_of(pack_weights(start)),
        "run_folder": str(path.absolute()),
        "ancestors": [_ancestor(start), *ancestors(start.path, start.origin)],
    }


def _place(run: Run) -> str:
    """Return the absolute path of a run, or that of a Hugging Face folder after "hf:"."""
    source = str(run.path)
    folder = source.removeprefix("hf:")
    return source.removesuffix(folder) + str(Path(folder).absolute())


def _ancestor(run: Run) -> dict[str, Any]:
    """Return a run's absolute path and provenance, for the origin of runs that start from it."""
    facts = ("stage", "steps", "inputs", "packed", "fingerprint", "questions", "parent_weights")
    return {"run": _place(run)} | {name: run.origin[name] for name in facts if name in run.origin}


def ancestry(path: Path, origin: Mapping[str, Any]) -> list[str]:
    """Return a line for a run and for each of its ancestors, indented under the run before."""
    runs = [{"run": str(path), **origin}, *ancestors(path, origin)]
    return [f"{'   ' * (i - 1)}{'└─ ' * (i > 0)}{_summary(run)}" for i, run in enumerate(runs)]


def _summary(run: Mapping[str, Any]) -> str:
    steps = f", {run['steps']:,} steps" if run.get("steps") else ""
    inputs = " on " + ", ".join(run["inputs"]) if run.get("inputs") else ""
    data = f", data {run['fingerprint']}" if run.get("fingerprint") else ""
    return f"{run['run']}: {run.get('stage', 'unknown')}{inputs}{steps}{data}"


def with_start(usual: Recipe, start: Run) -> Recipe:
    """Return a recipe with the usual finetuning of `start`, its model, tokenizer and template.

    It has the start's seed, too, which chooses the held-out data: the start hasn't read them.
    """
    theirs = start.recipe
    same_head = type(theirs.head) is type(usual.head)
    return msgspec.structs.replace(
        usual,
        seed=theirs.seed,
        model=theirs.model,
        tokenizer=theirs.tokenizer,
        template=theirs.template,
        head=with_labels(theirs.head, ()) if same_head else usual.head,
        training=_finetuning(theirs),
        finetuning=theirs.finetuning,
    )


def finetuning_recipe(start: Run) -> Recipe:
    """Return the recipe of a run with its usual finetuning, and without its task."""
    return msgspec.structs.replace(start.recipe, task=None, training=_finetuning(start.recipe))


def _finetuning(recipe: Recipe) -> TrainingConfig:
    return find_recipe(recipe.finetuning).training


def require_same(start: Run, recipe: Recipe, parts: Sequence[str]) -> None:
    """Raise unless a recipe has these parts of a run.

    Raises:
        UserError: names the field that differs.
    """
    for part in parts:
        here, there = getattr(recipe, part), getattr(start.recipe, part)
        if here != there:
            field, value, theirs = _difference(here, there, part)
            *others, last = (f"{name}.*" for name in parts)
            raise UserError(
                f"{field} = {value}: {start.path} has {theirs}, which can't be changed; "
                f"leave {', '.join(others)} and {last} as they are"
            )


def convert(start: Run, out: str | Path, settings: Sequence[str]) -> Run:
    """Save the weights of a run as a run with other settings, and return it in evaluation mode.

    `settings` such as "model.attention.kind=elu" change the mechanism, the positions, or other
    options that keep the shapes of tensors. The tensors of another mechanism are drawn by the seed.

    Raises:
        UserError: a setting changes the shape of a tensor, or isn't one of the model; `out` exists.
        UnsupportedError: the mechanism lacks a feature that the model requires.

    >>> other = regard.convert(run, "windowed", ["model.attention.kind=sliding-window"])
    >>> other.recipe.model.attention
    SlidingWindowConfig(size=32, block_size=16)
    """
    out = Path(out)
    require_new(out)
    recipe = override(start.recipe, settings)
    parts = recipe.__struct_fields__
    changed = [part for part in parts if getattr(recipe, part) != getattr(start.recipe, part)]
    for part in changed:
        if part not in ("model", "head", "seed"):
            raise UserError(
                f"{part}.*: a conversion changes model.*, head.* and seed; leave {part}.* out, or "
                "give it to the training that follows"
            )
    if not {"model", "head"} & set(changed):
        raise UserError(
            f"{start.path}: nothing is changed; give settings such as model.attention.kind=elu"
        )
    run = Run.new(out, recipe, start.tokenizer, derived_origin(start, CONVERSION))
    begin_with(start, run)
    save_derived(start, run)
    run.model.eval()
    return run


def derived_origin(start: Run, stage: str) -> dict[str, Any]:
    """Return the origin of a run derived from `start` without training; without its parent."""
    kept = {name: value for name, value in start.origin.items() if name not in _OWN}
    return kept | {"stage": stage}


def save_derived(start: Run, run: Run) -> None:
    """Write a run derived from `start` without training, with its held-out rows and tokens.

    Raises:
        UserError: another process writes its folder.
    """
    with held_alone(run.path), new_folder(run.path) as folder:
        if (rows := start.path / HELD_OUT).is_file():
            shutil.copy(rows, folder)
        if is_packed(tokens := start.path / "tokens"):
            link_corpus(tokens, folder / "tokens")
        run.save_new(folder)


_OWN = ("code", "steps", "new_tensors", "dropped_tensors")
"""Facts of an origin that don't hold for a conversion; the data and their fingerprint do."""


def shown_names(names: Iterable[str]) -> str:
    """Return names of tensors as text, those of all layers merged."""
    return ", ".join(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names))


def _copy_weights(start: Run, run: Run) -> tuple[list[str], list[str]]:
    """Copy tensors that both models have; return the names of new and of dropped tensors.

    Raises:
        UserError: a tensor has another shape.
    """
    theirs: dict[str, Tensor] = start.model.state_dict()  # with tied ones, which may be untied
    ours, replaced = saved_tensors(run.model), _replaced(start, run)
    kept = [name for name in ours if name in theirs and not name.startswith(replaced)]
    for name in kept:
        if ours[name].shape != theirs[name].shape:
            here, there = shown_shape(ours[name].shape), shown_shape(theirs[name].shape)
            raise UserError(
                f"{start.path}: {name} has shape {there}, and would have {here}, but weights are "
                "kept; leave out the setting that changes its shape"
            )
    with torch.no_grad():
        for name in kept:
            ours[name].copy_(theirs[name])
        _keep_factors(start.model, run.model)
    new = [name for name in ours if name not in kept]
    return new, [name for name in saved_tensors(start.model) if name not in kept]


def _keep_factors(start: nn.Module, run: nn.Module) -> None:
    """Keep the factors of norms where one model stores w and the other 1 + w."""
    before = dict(start.named_modules())
    for name, norm in run.named_modules():
        if isinstance(norm, _NORMS) and isinstance(before.get(name), _NORMS):
            norm.weight.add_(_stored_below(before[name]) - _stored_below(norm))


_NORMS = (nn.LayerNorm, RMSNorm)


def _stored_below(norm: nn.Module) -> int:
    """Return by how much the stored weights of a norm are below its factors."""
    return int(isinstance(norm, ZeroCenteredRMSNorm))


def _replaced(start: Run, run: Run) -> tuple[str, ...]:
    """Return prefixes of tensors whose meaning differs between the configurations."""
    old_stacks, prefixes = _stacks(start.recipe.model), list[str]()
    for stack, config in _stacks(run.recipe.model).items():
        old = old_stacks.get(stack)
        if getattr(config, "positions", None) != getattr(old, "positions", None):
            prefixes += [f"{stack}absolute.", f"{stack}bias."]
        if getattr(config, "ngrams", None) != getattr(old, "ngrams", None):
            prefixes.append(f"{stack}ngrams.")
        for layer, (new, was) in _layer_pairs(config, old).items():
            place, theirs = f"{stack}{layer}", _mechanisms(was)
            for part, mechanism in _mechanisms(new).items():
                if mechanism == (before := theirs.get(part)):
                    continue
                own = Attention if type(mechanism) is type(before) else Attention | Gating
                within = f"{place}{part}"
                modules = run.model.named_modules()
                prefixes += [
                    f"{n}." for n, m in modules if n.startswith(within) and isinstance(m, own)
                ]
            # A convolution that gains or loses a residual connection.
            if (getattr(new, "short_conv", 0) > 0) != (getattr(was, "short_conv", 0) > 0):
                prefixes.append(f"{place}self_attention.short_conv.")
    return (*prefixes, *(() if _same_head(start, run) else ("head.",)))


def _layer_pairs(config: object, old: object) -> dict[str, tuple[object, object]]:
    """Return the new and old configuration of each layer, or of a body without layers.

    Keys are prefixes of tensor names, after that of the stack.
    """
    if not isinstance(config, TransformerConfig) or not isinstance(old, TransformerConfig):
        return {"": (config, old)}
    pairs = zip(config.layers, old.layers, strict=False)
    return {f"layers.{i}.": pair for i, pair in enumerate(pairs)}


def _mechanisms(config: object) -> dict[str, object]:
    """Return the mechanisms of a layer by their place in it, or that of a body without layers."""
    if not isinstance(config, TransformerConfig):
        return {"": getattr(config, "attention", None)}
    cross = getattr(config, "cross", None)
    return {"self_attention.": config.attention, "cross_attention.": cross}


def _stacks(config: ModelConfig) -> dict[str, ModelConfig | TransformerConfig]:
    """Return the parts of a body that have mechanisms and positions, by the names of tensors."""
    if isinstance(config, EncoderDecoderConfig):
        return {"body.encoder.": config.encoder, "body.decoder.": config.decoder}
    return {"body.": config}


def _same_head(start: Run, run: Run) -> bool:
    """Whether the heads have the same kind, shape and labels."""
    theirs, ours = start.recipe.head, run.recipe.head
    if type(theirs) is not type(ours):
        return False
    if getattr(theirs, "labels", ()) != getattr(ours, "labels", ()):
        return False
    shapes = [
        [tensor.shape for tensor in made.model.head.state_dict().values()] for made in (start, run)
    ]
    return shapes[0] == shapes[1]


def _difference(here: Any, there: Any, path: str) -> tuple[str, Any, Any]:
    """Return the first field that differs, and its two values."""
    if isinstance(here, Config) and isinstance(there, Config):
        if type(here) is not type(there):
            return f"{path}.kind", here.__struct_config__.tag, there.__struct_config__.tag
        for name in here.__struct_fields__:
            if getattr(here, name) != getattr(there, name):
                return _difference(getattr(here, name), getattr(there, name), f"{path}.{name}")
    return path, here, there
