"""Recipe files carry the version of their format: optional when written by hand, not in a run."""

from pathlib import Path

import pytest

from regard.errors import UserError
from regard.runs.recipe import FORMAT, Recipe, load_recipe, read_recipe, recipe_to_toml


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
