"""Checks that a run's folder can be written, or resumed with the same recipe and data."""

from pathlib import Path

from regard.config import to_toml
from regard.errors import UserError
from regard.files import read_table
from regard.runs.recipe import load_recipe
from regard.runs.run import Run
from regard.runs.transformers_files import TRANSFORMERS_FILES
from regard.tasks.rows import HELD_OUT
from regard.text.tokenizer import FILES as TOKENIZER_FILES
from regard.text.tokenizer import Tokenizer


def check_resumable(run: Run, *, resume: bool) -> None:
    """Raise unless the run's folder holds the same run, and it is to be resumed.

    Raises:
        UserError: another run is there, or the same and `resume` is off.
    """
    path = run.path
    if not resume:
        raise UserError(f"{path}: holds a run; choose another --out, or go on with --resume")
    here, there = to_toml(run.recipe), to_toml(load_recipe(path))
    if here != there:
        changed = sorted(set(here.splitlines()) ^ set(there.splitlines()))
        raise UserError(
            f"{path}/config.toml: is another recipe ({'; '.join(changed)}); "
            "resume with the same recipe, or choose another --out"
        )
    origin = read_table(path / "origin.json")
    for name in ("stage", "fingerprint", "parent_weights", "code"):
        if origin.get(name) != run.origin.get(name):
            raise UserError(
                f"{path}/origin.json: {name} was {origin.get(name)} and is {run.origin.get(name)}; "
                "resume with the same command and data, or choose another --out"
            )
    saved = path / "tokenizer.json"
    if saved.exists() and Tokenizer.load(path).fingerprint != run.tokenizer.fingerprint:
        raise UserError(
            f"{saved}: isn't the tokenizer of these files, so they have changed "
            "since; choose another --out"
        )


def require_free(path: Path) -> None:
    """Raise unless a new run can be written to a folder, which may hold the first files of one.

    Raises:
        UserError: it holds something else.
    """
    first = {*TOKENIZER_FILES, *TRANSFORMERS_FILES, "origin.json", "tokens", HELD_OUT}
    if path.exists() and not (
        path.is_dir()
        and all(p.name in first or p.name.endswith(".partial") for p in path.iterdir())
    ):
        raise UserError(f"{path}: exists but is not a run folder; choose another --out")
