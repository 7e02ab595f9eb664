"""The recipes that come with Regard fit what they are for."""

import warnings
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.cli import main
from regard.config import override
from regard.errors import UserError
from regard.models.builders import make_model
from regard.models.head_config import ClassificationHeadConfig, TokenClassificationHeadConfig
from regard.runs.recipe import (
    FORMAT,
    ObjectiveConfig,
    Recipe,
    load_recipe,
    read_recipe,
    recipe_to_toml,
)
from regard.runs.recipes import PURPOSES, RECIPES, TASKS
from regard.runs.run import Run
from regard.tasks.examples import encode_pairs
from regard.tasks.registry import TaskConfig, TextTask
from regard.tasks.world import QUESTIONS, WorldConfig, make_world
from regard.text.config import BytePairsConfig
from regard.text.template import Affixes, Template
from regard.text.tokenizer import train_tokenizer
from regard.training.sources.examples import task_dataset


def test_every_task_has_a_recipe() -> None:
    assert {type(recipe.task) for recipe in TASKS.values()} == set(get_args(TaskConfig))
    for name, recipe in TASKS.items():
        assert recipe.task is not None
        assert recipe.task.__struct_config__.tag == name
    assert not any(RECIPES[name].task for name in RECIPES.keys() - TASKS.keys())


def test_each_recipe_makes_a_model() -> None:
    for name in RECIPES:
        recipe = RECIPES[name]
        with torch.device("meta"):  # some are large
            model = make_model(recipe.model, _with_labels(recipe).head, 10)
        assert sum(parameter.numel() for parameter in model.parameters()) > 100_000


@pytest.mark.parametrize("name", ["default", "demo"])
def test_biographies_and_questions_fit_the_block(name: str) -> None:
    recipe = RECIPES[name]
    world = make_world(WorldConfig())
    questions = world.questions("qa_train", QUESTIONS)
    texts = [*world.documents, *(t for q in questions for t in (q.text, q.answer or ""))]
    tokenizer = train_tokenizer(recipe.tokenizer, texts)
    template, longest = Template(recipe.template, tokenizer), recipe.model.context_length
    rows = [template.document.around(tokenizer.encode(text)) for text in world.documents]
    assert max(map(len, rows)) <= longest + 1
    assert len(encode_pairs(template, questions, longest)) == len(questions)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in TASKS if isinstance(TASKS[n].task, TextTask)])
def test_a_tasks_own_examples_fit_and_can_be_written(name: str) -> None:
    recipe = TASKS[name]
    assert isinstance(recipe.task, TextTask)
    split = recipe.task.make(recipe.seed)
    texts = [text for q in split.training for text in (q.text, q.second or "", q.answer or "")]
    texts += [document.text for document in recipe.task.documents()]
    run = Run.new(
        Path("nowhere"), _with_labels(recipe), train_tokenizer(recipe.tokenizer, texts), {}
    )
    for questions in (split.training, split.test):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of texts that are cut
            task_dataset(run, questions)


def _with_labels(recipe: Recipe) -> Recipe:
    """The recipe with the labels that its examples have."""
    if not isinstance(recipe.head, ClassificationHeadConfig | TokenClassificationHeadConfig):
        return recipe
    labels = {
        "classification": '["negative", "positive"]',
        "tagging": '["other", "person", "place", "profession"]',
        "entailment": '["contradicts", "follows", "unknown"]',
    }
    assert recipe.task is not None
    return override(recipe, [f"head.labels={labels[str(recipe.task.__struct_config__.tag)]}"])


def test_text_is_read_in_windows_of_characters() -> None:
    recipe = RECIPES["text"]
    assert recipe.data.documents == "auto"
    run = Run.new(Path("nowhere"), recipe, train_tokenizer(recipe.tokenizer, ["a"]), {})
    assert run.text_affixes == Affixes()
    assert recipe.tokenizer.__struct_config__.tag == "characters"


def test_gpt_small_has_the_layers_of_gpt2() -> None:
    """12 layers of 12 d² weights each, with d = 768, and an embedding matrix of 32 768 rows."""
    recipe = RECIPES["gpt-small"]
    assert isinstance(recipe.tokenizer, BytePairsConfig)
    with torch.device("meta"):
        model = make_model(recipe.model, recipe.head, recipe.tokenizer.size)
    matrices = [p.numel() for p in model.parameters() if p.ndim == 2]
    assert sum(matrices) == 12 * 12 * 768**2 + 32_768 * 768


def test_a_seed_changes_nothing_else() -> None:
    for name in RECIPES:
        before = RECIPES[name]
        after = override(before, ["seed=7"])
        assert msgspec.to_builtins(after) == msgspec.to_builtins(before) | {"seed": 7}


def test_each_recipe_has_a_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    assert PURPOSES.keys() == RECIPES.keys() - TASKS.keys()
    assert main.run(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(RECIPES)
    assert (
        "text" + " " * 19 + "train text: a small model of any text (decoder, 2,000 "
        in "\n".join(lines)
    )


# Files, whose format may be left out when they are written by hand, not in a run


def test_the_configuration_of_a_run_begins_with_its_format(tmp_path: Path) -> None:
    text = recipe_to_toml(Recipe(seed=3))
    assert text.startswith(f"format = {FORMAT}\n")
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    assert load_recipe(tmp_path) == read_recipe(tmp_path / "config.toml") == Recipe(seed=3)


@pytest.mark.parametrize("found", [str(FORMAT + 1), "1", f'"{FORMAT}"', "[]"])
def test_another_format_stops_with_one_line(tmp_path: Path, found: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"format = {found}\nseed = 3\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.toml: format is .*, expected 2") as stopped:
        load_recipe(tmp_path)
    assert "\n" not in str(stopped.value)
    with pytest.raises(UserError, match=r"config\.toml: format is .*, expected 2"):
        read_recipe(path)


def test_only_a_recipe_written_by_hand_may_omit_the_format(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("seed = 3\n", encoding="utf-8")
    assert read_recipe(path).seed == 3
    with pytest.raises(UserError, match=r"config\.toml: format is missing, expected 2"):
        load_recipe(tmp_path)


# Shares of objectives

shares = st.floats(0, 1)


@given(shares, shares, shares, shares, shares, shares)
def test_shares_are_of_one_side_or_of_both(
    next_token: float, span: float, clozes: float, questions: float, masked: float, hidden: float
) -> None:
    from_the_left, from_both = next_token + span + clozes + questions, masked + hidden
    assume(from_the_left + from_both)
    objective = ObjectiveConfig(
        next_token=next_token,
        span_corruption=span,
        clozes=clozes,
        questions=questions,
        masked_tokens=masked,
        masked_autoencoding=hidden,
    )
    assert objective.from_the_left == pytest.approx(from_the_left)
    assert objective.from_both_sides == pytest.approx(from_both)
    assert objective.total == pytest.approx(from_the_left + from_both)


def test_an_objective_without_any_share_is_refused() -> None:
    ObjectiveConfig(next_token=0.0, masked_autoencoding=0.1)
    with pytest.raises(ValueError, match="all shares are 0"):
        ObjectiveConfig(next_token=0.0)


@pytest.mark.parametrize("masking", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_of_tokens_that_cannot_be_masked_is_refused(masking: float) -> None:
    with pytest.raises(msgspec.ValidationError, match="masking"):
        msgspec.convert({"masking": masking}, ObjectiveConfig)
