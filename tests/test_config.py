"""Recipes as TOML: nothing is lost, everything is explained, mistakes are named."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import convert, override, to_toml
from regard.errors import UserError
from regard.models.config import (
    EncoderConfig,
    EncoderDecoderConfig,
    TargetConfig,
    TransformerConfig,
)
from regard.positions.config import AlibiConfig, NoPositionsConfig
from regard.runs.recipe import Recipe, read_recipe
from regard.runs.recipes import RECIPES
from regard.tasks.casing import CasingConfig
from regard.tasks.world import WorldConfig
from regard.toml import to_commented_toml

DEFAULT = RECIPES["default"]

whole_numbers = st.integers(1, 10**6).map(str)
shares = st.floats(0, 0.99).map(repr)
SETTINGS = {
    "seed": st.integers(0, 2**32 - 1).map(str),
    "data.documents": st.sampled_from(["lines", "files"]),
    "data.validation": shares,
    "template.prompt": st.sampled_from(["{question}", "{bos}Q: {question}"]),
    "tokenizer.kind": st.sampled_from(["characters", "words", "byte-pairs"]),
    "model.context_length": st.integers(8, 4096).map(str),
    "model.n_kv_heads": st.sampled_from(["none", "1", "2"]),
    "model.d_ff": st.one_of(st.just("none"), whole_numbers),
    "model.activation": st.sampled_from(["gelu", "relu", "relu2"]),
    "model.dropout": shares,
    "model.positions.kind": st.sampled_from(["learned", "rotary", "none"]),
    # Above 0: no recipe may be left without an objective.
    "objective.span_corruption": st.floats(0.01, 1).map(repr),
    "objective.question_batch": st.one_of(st.just("none"), whole_numbers),
    "training.steps": whole_numbers,
    "training.epochs": whole_numbers,
    "training.lr": st.floats(1e-9, 1000).map(repr),
    "training.optimizer.kind": st.sampled_from(["adamw", "muon"]),
    "training.optimizer.betas": st.tuples(shares, shares).map(lambda b: f"[{b[0]}, {b[1]}]"),
}

recipes = st.builds(
    lambda base, chosen: override(base, [f"{path}={value}" for path, value in chosen.items()]),
    st.sampled_from([r for r in RECIPES.values() if isinstance(r.model, TransformerConfig)]),
    st.fixed_dictionaries({}, optional=SETTINGS),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place to write to, for many examples of one property."""
    return tmp_path_factory.mktemp("toml") / "recipe.toml"


def fields(config: msgspec.Struct, *path: str) -> Iterator[tuple[str, ...]]:
    """The path of every field, of sections too."""
    for name in config.__struct_fields__:
        yield (*path, name)
        value = getattr(config, name)
        if isinstance(value, msgspec.Struct):
            yield from fields(value, *path, name)


def explained(toml: str) -> set[tuple[str, ...]]:
    """The path of every field and section that a comment precedes."""
    found: set[tuple[str, ...]] = set()
    section: tuple[str, ...] = ()
    comment = ""
    for line in toml.splitlines():
        heading = re.fullmatch(r"\[(.+)\]", line)
        field = re.match(r"(?:# )?(\w+) =", line)
        if heading:
            section = tuple(heading[1].split("."))
        if (heading or field) and re.match(r"# \w.*\.$", comment):
            found.add(section if heading else (*section, field[1] if field else ""))
        comment = line
    return found


def test_the_commented_form_of_each_recipe_is_that_recipe() -> None:
    for name in RECIPES:
        recipe = RECIPES[name]
        assert convert(tomllib.loads(to_commented_toml(recipe)), Recipe, where="") == recipe


def test_every_field_is_explained() -> None:
    for name in RECIPES:
        recipe = RECIPES[name]
        assert explained(to_commented_toml(recipe)) == set(fields(recipe))


@given(recipe=recipes, comments=st.booleans(), line_end=st.sampled_from(["\n", "\r\n"]))
def test_any_recipe_comes_back_from_its_file(
    file: Path, recipe: Recipe, comments: bool, line_end: str
) -> None:
    text = (to_commented_toml if comments else to_toml)(recipe)
    file.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", line_end).encode())
    assert read_recipe(file) == recipe
    assert to_toml(read_recipe(file)) == to_toml(recipe)


def value_at(recipe: Recipe, path: str) -> Any:
    value: Any = recipe
    for name in path.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("assignment", "path", "expected"),
    [
        ("seed=7", "seed", 7),
        ("model.n_layers=6", "model.n_layers", 6),
        ("model.tie_head=true", "model.tie_head", True),
        ("training.lr=1e-4", "training.lr", 1e-4),
        ("training.lr=1", "training.lr", 1.0),
        ("model.activation=relu2", "model.activation", "relu2"),
        ('model.activation="relu2"', "model.activation", "relu2"),
        ("model.d_ff=none", "model.d_ff", None),
        ("training.optimizer.betas=[0.5, 0.6]", "training.optimizer.betas", (0.5, 0.6)),
        ("model.positions.base=500.0", "model.positions.base", 500.0),
        ("task.kind=casing", "task", CasingConfig()),
        ("data.table.second=3", "data.table.second", "3"),
        ("data.table.second=1.50", "data.table.second", "1.50"),
        ('data.table.second="3"', "data.table.second", "3"),
    ],
)
def test_an_assignment_changes_one_field(assignment: str, path: str, expected: object) -> None:
    changed = override(DEFAULT, [assignment])
    assert value_at(changed, path) == expected
    for other in fields(DEFAULT):
        name = ".".join(other)
        if not path.startswith(name):
            assert value_at(changed, name) == value_at(DEFAULT, name)


def test_the_sections_of_another_kind_can_be_set() -> None:
    settings = ["kind=encoder-decoder", "encoder.n_layers=1", "decoder.positions.kind=none"]
    changed = override(DEFAULT, [f"model.{setting}" for setting in settings])
    encoder = TransformerConfig(n_layers=1)
    decoder = TargetConfig(positions=NoPositionsConfig())
    assert changed.model == EncoderDecoderConfig(encoder=encoder, decoder=decoder)
    changed = override(DEFAULT, ["model.kind=encoder", "model.positions.kind=alibi"])
    assert changed.model == EncoderConfig(positions=AlibiConfig())


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        (["model.kind=encoder-decoder", "model.positions.kind=none"], "no section 'positions'"),
        (["model.kind=encoder-decoder", "model.encoder.kind=decoder"], "model.encoder"),
        (["model.encoder.n_layers=1"], "no section 'encoder'"),
        (["model.d_ff.size=1"], "no section 'd_ff'"),
        (["model.kind=rnn", "model.context_length.size=1"], "no section 'context_length'"),
    ],
)
def test_a_section_of_another_kind_is_no_section(assignments: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        override(DEFAULT, assignments)


def test_another_kind_has_its_own_fields_with_their_usual_values() -> None:
    chosen = ["training.optimizer.kind=adamw", "training.optimizer.weight_decay=0.3"]
    optimizer = override(DEFAULT, chosen).training.optimizer
    assert msgspec.to_builtins(optimizer) == {
        "kind": "adamw",
        "betas": (0.9, 0.95),
        "weight_decay": 0.3,
    }


def test_the_same_kind_keeps_its_fields() -> None:
    before = override(DEFAULT, ["training.optimizer.momentum=0.5"])
    assert override(before, ["training.optimizer.kind=muon"]) == before


@pytest.mark.parametrize(
    ("assignments", "steps", "epochs"),
    [
        (["training.steps=5"], 5, None),
        (["training.epochs=3"], None, 3),
        (["training.steps=5", "training.epochs=3"], None, 3),
        (["training.epochs=3", "training.steps=5"], 5, None),
    ],
)
def test_steps_and_epochs_replace_each_other(
    assignments: list[str], steps: int | None, epochs: int | None
) -> None:
    changed = override(DEFAULT, assignments)
    assert (changed.training.steps, changed.training.epochs) == (steps, epochs)


TOP = "data, finetuning, head, model, objective, seed, task, template, tokenizer, training"


@pytest.mark.parametrize(
    ("assignments", "path", "allowed"),
    [
        ("nonsense=1", "nonsense", TOP),
        (
            "model.layers=1",
            "model.layers",
            "activation, attention, attention_dropout, canon, canon_width",
        ),
        ("model.positions.base.x=1", "model.positions.base.x", "base, dim, kind, scaling"),
        ("tokenizer.kind=letters", "tokenizer.kind", "characters, words, byte-pairs"),
        ("model.positions.kind=alibis", "model.positions.kind", "learned, sinusoidal, one-hot"),
        ("model.positions.kind=", "model.positions.kind", "learned, sinusoidal, one-hot"),
        ("data.documents=words", "data.documents", "lines, files"),
        ("model.n_layers=0", "model.n_layers", ">= 1"),
        ("model.n_layers=two", "model.n_layers", "expected an integer >= 1, not 'two'"),
        ("model.n_layers=1.5", "model.n_layers", "an integer >= 1, not 1.5"),
        ("model.n_layers=none", "model.n_layers", "an integer >= 1, not none"),
        ("model.n_layers", "model.n_layers", "an integer >= 1, not ''"),
        ("model.dropout=1", "model.dropout", "< 1"),
        ("model.dropout=nan", "model.dropout", ">= 0"),
        ("model.tie_head=1", "model.tie_head", "expected true or false, not 1"),
        ("model.n_heads=3", "model", "divisor of d_model"),
        ("model=3", "model", "is a section"),
        ("seed=99999999999999999999", "seed", "<= 4294967295"),
        ("training.lr=0", "training.lr", "> 0"),
        ("training.lr=inf", "training.lr", "<= 1000"),
        ("training.steps=none", "training", "either epochs or steps"),
        ("training.steps=abc", "training.steps", "an integer >= 1 or none, not 'abc'"),
        ("training.optimizer.betas=3", "training.optimizer.betas", "a list, not 3"),
        ("training.optimizer.betas=[0.9]", "training.optimizer.betas", "length 2"),
        ("training.optimizer.betas=[0.9, 2]", "training.optimizer.betas[1]", "< 1"),
        ("objective.next_token=0", "objective", "above 0"),
        (
            "tokenizer.kind=words tokenizer.size=400",
            "tokenizer.size",
            "special_tokens, unknown",
        ),
        (
            "model.positions.kind=alibi model.positions.base=9",
            "model.positions.base",
            "none but kind",
        ),
        (
            "training.optimizer.kind=adamw training.optimizer.momentum=0.9",
            "training.optimizer.momentum",
            "there are: betas, weight_decay",
        ),
        ("training.optimizer=adamw", "training.optimizer", "write training.optimizer.kind=adamw"),
        ("training=3", "training", "write training.FIELD=VALUE"),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(assignments: str, path: str, allowed: str) -> None:
    given_in_order = re.split(r" (?=\w+\.)", assignments)
    with pytest.raises(UserError) as refused:
        override(DEFAULT, given_in_order)
    message = str(refused.value)
    assert message.startswith(f"command line: {path}: ")
    assert allowed in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed = ", "isn't TOML"),
        ("seeds = 1", "seeds"),
        ("[model]\nlayers = 2", "model: "),
        ("[model]\npositions = 'rotary'", "model.positions: "),
        ("[model.positions]\nbase = 5.0", "model.positions: "),
        ("[model.positions]\nkind = 3", "model.positions.kind: "),
        ("[training]\nlr = 1e-3", "training: give either epochs or steps"),
        ("[training]\nsteps = 3\nepochs = 3", "training: give either epochs or steps"),
        ("seed = 1\nseed = 2", "isn't TOML"),
        ("model = 1", "model: "),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as refused:
        read_recipe(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_says_nothing_is_the_usual_recipe(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("", encoding="utf-8")
    assert read_recipe(tmp_path / "recipe.toml") == Recipe()


def test_the_world_is_configured_in_the_same_way() -> None:
    config = override(WorldConfig(), ["people=200", "skew=1", "augment=false"])
    assert config == WorldConfig(people=200, skew=1.0, augment=False)
    assert convert(tomllib.loads(to_toml(config)), WorldConfig, where="") == config
    assert explained(to_commented_toml(config)) == set(fields(config))
