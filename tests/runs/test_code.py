"""Custom code in a run: its own copy, identified by its hash, and run only where it is trusted."""

import hashlib
import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from regard import api
from regard.config import convert
from regard.errors import UserError
from regard.models.config import EncoderDecoderConfig
from regard.runs.code import code_files, require_trusted
from regard.runs.run import Run
from tiny import BIOGRAPHIES, MODEL, QUESTIONS, STEPS, Command, refused, succeeded, write_data

FILE = """from regard.attention import Softmax


class Mine(Softmax):
    name = "mine"

    def __init__(self, *, scale: float = 1.0):
        super().__init__()
        self.factor = scale

    def scale(self, d):
        return self.factor * super().scale(d)
"""
TEXTS = [*BIOGRAPHIES, *(question.text for question in QUESTIONS)]
SETTINGS = [*MODEL, *STEPS, "model.attention.kind=mine.py:Mine", "model.attention.scale=2"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with custom attention, its code and the list of trusted files. See `run`."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("REGARD_TRUSTED_CODE", str(folder / "config/trusted"))
        (folder / "mine.py").write_text(FILE, "utf-8")
        api.pretrain(TEXTS, out=folder / "run", settings=SETTINGS, device="cpu")
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, in the current folder."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_TRUSTED_CODE", str(tmp_path / "config/trusted"))
    return tmp_path / "run"


@torch.no_grad()
def logits(run: Run) -> torch.Tensor:
    out: torch.Tensor = run.language_model(torch.tensor([[5, 6, 7, 8]]))
    return out


def test_the_run_has_its_own_copy_and_names_its_hash(run: Path) -> None:
    assert (run / "code/mine.py").read_text("utf-8") == FILE
    loaded = Run.load(run)
    assert loaded.origin["code"].keys() == {"mine.py"}
    assert len(loaded.origin["code"]["mine.py"]) == 64
    assert 'kind = "mine.py:Mine"' in (run / "config.toml").read_text("utf-8")


def test_a_file_in_a_pattern_is_copied_too(run: Path, tmp_path: Path) -> None:
    pattern = ["model.n_layers=2", "model.pattern=softmax+mine.py:Mine"]
    settings = [*MODEL, *STEPS, *pattern]
    api.pretrain(TEXTS, out=tmp_path / "mixed", settings=settings, device="cpu")
    assert Run.load(tmp_path / "mixed").origin["code"] == Run.load(run).origin["code"]
    assert (tmp_path / "mixed/code/mine.py").read_text("utf-8") == FILE


def test_a_run_that_was_killed_after_its_copy_is_begun_again(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "code", tmp_path / "begun/code")
    api.pretrain(TEXTS, out=tmp_path / "begun", settings=SETTINGS, device="cpu")
    assert torch.equal(logits(Run.load(tmp_path / "begun")), logits(Run.load(run)))


def test_a_run_computes_with_its_copy_wherever_it_is(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = logits(Run.load(run))
    (tmp_path / "mine.py").write_text("raise RuntimeError", "utf-8")
    assert torch.equal(logits(Run.load(run)), before)
    (tmp_path / "mine.py").unlink()
    assert torch.equal(logits(Run.load(run)), before)
    (tmp_path / "elsewhere").mkdir()
    shutil.move(run, tmp_path / "elsewhere/run")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert torch.equal(logits(Run.load(Path("run"))), before)


def test_code_from_elsewhere_stops_with_how_to_trust_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_TRUSTED_CODE", str(tmp_path / "other/trusted"))
    with pytest.raises(UserError, match=r"code/mine\.py: is code from elsewhere .*--trust-code"):
        Run.load(run)
    api.load(run, device="cpu", trust_code=True)
    Run.load(run)  # trusted from now on


def test_untrusted_code_does_not_run(run: Path, tmp_path: Path) -> None:
    marker, path = tmp_path / "ran", run / "code/mine.py"
    path.write_text(f"open({str(marker)!r}, 'w')\n" + FILE, "utf-8")
    origin = json.loads((run / "origin.json").read_text("utf-8"))
    origin["code"]["mine.py"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (run / "origin.json").write_text(json.dumps(origin), "utf-8")
    with pytest.raises(UserError, match="--trust-code"):
        Run.load(run)
    assert not marker.exists()


def test_without_a_home_the_list_needs_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REGARD_TRUSTED_CODE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError))
    (tmp_path / "mine.py").write_text(FILE, "utf-8")
    with pytest.raises(UserError, match="no home folder; set REGARD_TRUSTED_CODE to a file"):
        require_trusted([f"{tmp_path}/mine.py:Mine"], where="recipe.toml")


def test_tampered_code_is_refused_even_if_trusted(run: Path) -> None:
    path = run / "code/mine.py"
    path.write_text(FILE.replace("self.factor *", "-self.factor *"), "utf-8")
    for trust in (False, True):
        with pytest.raises(UserError, match=r"code/mine\.py: was changed after training"):
            api.load(run, device="cpu", trust_code=trust)
    path.unlink()
    with pytest.raises(UserError, match=r"code/mine\.py: is missing"):
        Run.load(run)


def test_resuming_with_an_edited_file_is_refused(run: Path, tmp_path: Path) -> None:
    settings = [*SETTINGS, "training.steps=3"]
    api.pretrain(TEXTS, out=run, settings=settings, device="cpu", resume=True)
    (tmp_path / "mine.py").write_text(FILE + "# edited\n", "utf-8")
    with pytest.raises(UserError, match=r"origin\.json: code was"):
        api.pretrain(TEXTS, out=run, settings=settings, device="cpu", resume=True)


def test_a_child_takes_its_parent_s_code(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").unlink()
    parent, out = Run.load(run), tmp_path / "child"
    child = api.finetune(parent, QUESTIONS, out=out, settings=STEPS, device="cpu")
    assert child.origin["code"] == parent.origin["code"]
    assert (out / "code/mine.py").read_text("utf-8") == FILE


@pytest.mark.usefixtures("run")
def test_the_command_line_trusts_by_option(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regard: Command
) -> None:
    shutil.copytree(trained, tmp_path / "other")
    for number, command in enumerate(
        [
            ("generate", "run", "Ada", "--max-new-tokens", "2"),
            ("evaluate", "run", "text.txt"),
            ("look", "run", "Ada"),
            ("look", "other", "Ada", "--compare", "run"),
            ("head-scores", "run", "Ada"),
            ("finetune", "pairs.tsv", "--from", "run", "--out", "child", "--dry-run"),
            ("info", "run"),
        ]
    ):
        monkeypatch.setenv("REGARD_TRUSTED_CODE", str(tmp_path / f"trusted-{number}"))
        stopped = regard(*command)
        assert (stopped.code, stopped.err.count("\n")) == (2, 1)
        assert "--trust-code" in stopped.err
        done = regard(*command, "--trust-code")
        assert done.code == 0, done.err
    assert regard("info", "run").code == 0, "trusted from now on"


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(FILE + f"# {folder}\n", "utf-8")
    sides = {
        side: {"attention": {"kind": f"{tmp_path / folder}/mine.py:Mine"}}
        for side, folder in (("encoder", "a"), ("decoder", "b"))
    }
    values = {"kind": "encoder-decoder", **sides}
    with pytest.raises(UserError, match="have one name; rename one of them"):
        code_files(convert(values, EncoderDecoderConfig, where="test"))


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder from elsewhere: code that leaves a mark, recipes and grids that name it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_TRUSTED_CODE", str(tmp_path / "config/trusted"))
    write_data(tmp_path)
    folder = tmp_path / "stranger"
    folder.mkdir()
    (folder / "evil.py").write_text(
        f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\n{FILE}", "utf-8"
    )
    kind = "stranger/evil.py:Mine"
    sizes = "[training]\nsteps = 2\nbatch = 2\n[model]\nn_layers = 2\nn_heads = 2\nd_model = 16\n"
    recipe = f'format = 2\n{sizes}[model.attention]\nkind = "{kind}"\n'
    (folder / "config.toml").write_text(recipe, "utf-8")
    task = recipe + '[task]\nkind = "copy"\n'
    (folder / "task.toml").write_text(task, "utf-8")
    (folder / "layers.toml").write_text(
        f'format = 2\n[[model.pattern]]\nattention.kind = "{kind}"\n', "utf-8"
    )
    small = ["training.batch=2", "model.n_layers=2", "model.n_heads=2", "model.d_model=16"]
    grid = f'task = "copy"\nseeds = 1\nsettings = {small}\n'
    over = f'[over.model]\npattern = ["softmax", "elu+{kind}*1"]\n'
    (folder / "pattern.toml").write_text(grid + over, "utf-8")
    over = f'[over.model.attention]\nkind = ["softmax", "{kind}"]\n'
    (folder / "grid.toml").write_text(grid + over, "utf-8")
    outer = 'task = "copy"\nrecipe = "stranger/task.toml"\nseeds = 1\n'
    (folder / "outer.toml").write_text(outer, "utf-8")


PATH = "model.attention.kind="
NAMED = f"{PATH}stranger/evil.py:Mine"


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize(
    "command",
    [
        ("config", "--recipe", "stranger/config.toml"),
        ("config", "--recipe", "stranger/layers.toml"),
        ("compare", "stranger/pattern.toml", "--dry-run"),
        ("pretrain", "text.txt", "--recipe", "stranger/config.toml", "--dry-run", "--out", "r"),
        ("compare", "stranger/grid.toml", "--dry-run"),
        ("compare", "stranger/outer.toml", "--dry-run"),
        ("compare", "copy", "--recipe", "stranger/task.toml", "--dry-run"),
    ],
    ids=" ".join,
)
def test_a_recipe_of_a_stranger_runs_no_code(command: tuple[str, ...], regard: Command) -> None:
    """`regard config` did, and so did a dry run."""
    refused(regard(*command), "names stranger/evil.py, code that would run", "--trust-code")
    assert not Path("ran").exists()
    done = regard(*command, "--trust-code")
    assert done.code == 0, done.err
    assert Path("ran").exists()


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize("name", ["a folder", "a=b", "a,b", "[a]", "a 'b'", 'a "b', "a.py:b", "é"])
def test_no_name_of_a_file_hides_it(name: str, regard: Command) -> None:
    Path("stranger").rename(name)
    kind, setting = (json.dumps(f"{before}{name}/evil.py:Mine") for before in ("", PATH))
    recipe, copy = "format = 2\n[model.attention]\n", "task = 'copy'\nseeds = 1\n"
    Path("r.toml").write_text(f"{recipe}kind = {kind}\n", "utf-8")
    Path("g.toml").write_text(f"{copy}[over.model.attention]\nkind = ['elu', {kind}]\n", "utf-8")
    Path("s.toml").write_text(f"{copy}settings = [{setting}]\n", "utf-8")
    refused(regard("config", "--recipe", "r.toml"), "code that would run")
    for file in ("g.toml", "s.toml"):
        refused(regard("compare", file, "--dry-run"), "code that would run")
    assert not Path("ran").exists()


@pytest.mark.usefixtures("stranger")
def test_recipes_that_name_one_another_are_trusted(regard: Command) -> None:
    recipe = Path("stranger/config.toml").read_text("utf-8")
    for own, other in (("a", "b"), ("b", "a")):
        Path(f"{own}.toml").write_text(f'finetuning = "{other}.toml"\n{recipe}', "utf-8")
    succeeded(regard("config", "--recipe", "a.toml", "--trust-code"))


@pytest.mark.usefixtures("stranger")
def test_what_the_command_line_names_itself_is_trusted(regard: Command) -> None:
    done = regard("config", "--recipe", "stranger/config.toml", NAMED)
    assert done.code == 0, done.err
    assert regard("config", NAMED).code == 0
    assert regard("config", "--recipe", "stranger/config.toml").code == 2


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize(
    "lines",
    [
        r"""settings = ['model.attention={kind="stranger/evil.p\u0079:Mine"}']""",
        """[over]\n'model.attention={kind="stranger/evil.py:Mine"} #' = ["1"]""",
        """[over]\n"model.attention" = [{ 'kind="stranger/evil.py:Mine",scaled' = true }]""",
        """[over]\n'model.attention={kind="stranger/e' = ['vil.py:Mine"}']""",
    ],
)
def test_no_spelling_in_a_grid_hides_code(lines: str, regard: Command) -> None:
    shutil.copy("stranger/evil.py", "stranger/e=vil.py")
    Path("g.toml").write_text(f'task = "copy"\nseeds = 1\n{lines}\n', "utf-8")
    refused(regard("compare", "g.toml", "--dry-run"), "code that would run")
    assert not Path("ran").exists()


def test_only_the_named_files_are_trusted(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regard: Command
) -> None:
    (run / "code/other.py").write_text("print('other')\n", "utf-8")
    monkeypatch.setenv("REGARD_TRUSTED_CODE", str(tmp_path / "new"))
    assert regard("info", "run", "--trust-code").code == 0
    names = [line.split()[1] for line in (tmp_path / "new").read_text("utf-8").splitlines()]
    assert names == ["mine.py"]
