"""The page of exercises, made of models that have learned nothing."""

import re
import shlex
from pathlib import Path

import pytest
from exercise_files import another, exercise, models, page

from regard.cli import main
from regard.config import override

TINY = (
    *("model.n_layers=2", "model.n_heads=2", "model.d_model=16"),
    *("training.steps=1", "training.batch=4"),
)
pytestmark = pytest.mark.slow

LARGEST = 150_000
"""Bytes of a picture in the docs."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both runs, and the pages in it."""
    folder = tmp_path_factory.mktemp("exercises")
    decoder, encoder = (
        models.trained(plan(folder / name, override(recipe, TINY), 1500))
        for name, plan, recipe in (
            ("decoder", models.plan_decoder, models.DECODER),
            ("encoder", models.plan_encoder, models.ENCODER),
        )
    )
    named = str(encoder.run.path)
    others = [another.another_bert(encoder.run, named, 4)]
    failed = page.write_pages(folder / "out", decoder, encoder, (), others, 4)
    (folder / "failed").write_text("\n".join(number.name for number in failed))
    return folder


def commands(made: Path) -> list[list[str]]:
    """Those of the page, as a shell reads them."""
    text = (made / "out" / "README.md").read_text("utf-8")
    return [shlex.split(line) for line in re.findall(r"```\n(regard .*)\n```", text)]


def test_every_exercise_has_its_picture_its_page_and_its_command(made: Path) -> None:
    names = {path.stem for path in (made / "out").glob("*.png")}
    assert names == {path.stem for path in (made / "out").glob("*.html")}
    assert [f"{name}.html" for name in sorted(names)] == sorted(c[-1] for c in commands(made))
    assert len(names) == 10


def test_pictures_are_small(made: Path) -> None:
    for picture in (made / "out").glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size <= LARGEST


def test_links_lead_somewhere(made: Path) -> None:
    text = (made / "out" / "README.md").read_text("utf-8")
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    docs = Path(__file__).parents[2] / "docs" / "exercises"
    for target in targets:
        assert ((made / "out" / target).exists()) or (docs / target).resolve().exists(), target
    assert len(targets) >= 10


def test_a_command_writes_the_page_that_the_text_is_about(made: Path, tmp_path: Path) -> None:
    for command in commands(made):
        name = command[-1]
        assert main.run([*command[1:-1], str(tmp_path / name)]) == 0
        written = (tmp_path / name).read_text("utf-8")
        assert written == (made / "out" / name).read_text("utf-8")


def test_what_an_untrained_model_lacks_is_told(made: Path) -> None:
    """The page says ✗, and the command names what fails."""
    text = (made / "out" / "README.md").read_text("utf-8")
    failed = (made / "failed").read_text().splitlines()
    assert "*car* → *dog*, best head" in failed
    assert text.count("✗ |") == len(failed)
    assert "before training: least entropy of a head" not in failed


def test_a_training_that_is_done_is_not_begun_anew(made: Path) -> None:
    recipe = override(models.DECODER, TINY)
    again = models.trained(models.plan_decoder(made / "decoder", recipe, 1500))
    weights = (made / "decoder" / "model.safetensors").read_bytes()
    assert again.steps == 1
    assert (made / "decoder" / "model.safetensors").read_bytes() == weights


def test_cells_stay_in_their_columns() -> None:
    assert exercise.table(["a", "b"], [(0.123, "x|y")]).splitlines()[-1] == "| 0.12 | x\\|y |"
