"""Compiled packages in the cache: found for the same weights, machine and torch, and no others."""

import os
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from regard import api
from regard.attention.score_config import MobaConfig
from regard.decoding import package
from regard.decoding.package import DESCRIPTION, PACKAGE, Description, build, with_package
from regard.decoding.step import CompiledStep, PackagedModel
from regard.errors import UserError
from regard.files import cache_folder
from regard.models.builders import LanguageModel
from regard.runs.run import Run
from tiny import Command, refused, succeeded
from tiny_models import tiny_model

PROMPT = ["Ada"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that are built in place of native code, which takes 15 seconds; a step of it fails."""
    made: list[Path] = []

    def build_file(
        _model: LanguageModel, _batch: int, path: Path
    ) -> tuple[CompiledStep, list[int]]:
        path.write_text("no native code")
        made.append(path)
        return fail, []

    def fail(_flat: list[torch.Tensor]) -> list[torch.Tensor]:
        raise RuntimeError("no native code")

    monkeypatch.setattr(package, "build", build_file)
    monkeypatch.setattr(package, "_open", lambda *_: fail)
    return made


def load(path: Path) -> Run:
    return api.load(path, device="cpu")


def change_weights(path: Path) -> None:
    run = load(path)
    with torch.no_grad():
        run.language_model.head.weight.neg_()
    run.save_weights()


def text(run: Run) -> str:
    [found] = api.generate(run, PROMPT, max_new_tokens=6, raw=True)
    return found


@pytest.mark.usefixtures("built")
def test_generation_uses_the_package_of_a_run(run: Path) -> None:
    plain = text(load(run))
    before = set(run.rglob("*"))
    made = api.compile(load(run))
    assert (made / PACKAGE).is_file()
    assert set(run.rglob("*")) == before, "native code never lies in the run folder"
    found = with_package(load(run))
    assert isinstance(found, PackagedModel)
    assert list(found.steps) == [1]
    with pytest.warns(UserWarning, match="no native code"):
        assert text(load(run)) == plain


@pytest.mark.usefixtures("built")
def test_a_copy_of_a_run_uses_its_package_and_other_weights_do_not(
    run: Path, tmp_path: Path
) -> None:
    old = api.compile(load(run))
    copied = shutil.copytree(run, tmp_path / "copy")
    assert isinstance(with_package(load(copied)), PackagedModel)
    change_weights(copied)
    assert isinstance(with_package(load(copied)), LanguageModel)
    change_weights(run)
    changed = load(run)
    with pytest.warns(UserWarning, match="is for other weights; decoding goes on without it"):
        assert isinstance(with_package(changed), LanguageModel)
    new = api.compile(changed)
    assert isinstance(with_package(changed), PackagedModel)
    assert new.is_dir()
    assert not old.exists(), "the package of the old weights is removed"


@pytest.mark.usefixtures("built")
def test_the_cache_is_read_once_until_it_changes(run: Path) -> None:
    loaded = load(run)
    made = api.compile(loaded)
    package._read.cache_clear()
    for _ in range(3):
        assert isinstance(with_package(loaded), PackagedModel)
    assert package._read.cache_info().misses == 1
    shutil.rmtree(made)
    os.utime(made.parent, (0, 0))  # Linux before 6.13 counts changes within 4 ms as one
    assert isinstance(with_package(loaded), LanguageModel)
    assert package._read.cache_info().misses == 2


@pytest.mark.usefixtures("built")
def test_two_processes_may_replace_a_package(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(run)
    made = api.compile(loaded)
    listed = package._packages()
    shutil.rmtree(made)  # by the other process
    monkeypatch.setattr(package, "_packages", lambda: listed)
    assert api.compile(loaded, again=True) == made
    assert made.is_dir()


@pytest.mark.usefixtures("built")
def test_a_package_for_something_else_is_not_used_and_a_line_tells_so(run: Path) -> None:
    made = api.compile(load(run))
    described = (made / DESCRIPTION).read_bytes()
    others = {"torch": "1.0", "precision": "float64", "regard": "0.0", "threads": 99}
    for field, value in (*others.items(), ("machine", "other")):
        package._read.cache_clear()
        known = msgspec.json.decode(described, type=Description)
        target = msgspec.structs.replace(known.target, **{field: value})
        changed = msgspec.structs.replace(known, target=target)
        (made / DESCRIPTION).write_bytes(msgspec.json.encode(changed))
        line = "other machine" if field == "machine" else f"{field} {value}"
        with pytest.warns(UserWarning, match=f"is for {line}"):
            assert isinstance(with_package(load(run)), LanguageModel)


@pytest.mark.usefixtures("built")
def test_packages_of_earlier_weights_are_removed_for_every_batch(run: Path) -> None:
    old = [api.compile(load(run), batch=batch) for batch in (1, 2)]
    change_weights(run)
    new = api.compile(load(run))
    assert new.is_dir()
    assert not any(folder.exists() for folder in old)


def test_a_package_is_for_a_row_or_more(run: Path) -> None:
    with pytest.raises(UserError, match="batch=0: expected 1 or more"):
        api.compile(load(run), batch=0)


@pytest.mark.usefixtures("built")
def test_each_precision_has_a_package(run: Path) -> None:
    api.compile(load(run), precision="bfloat16")
    with pytest.warns(UserWarning, match="is for precision bfloat16"):
        assert isinstance(with_package(load(run)), LanguageModel)
    api.compile(load(run))
    loaded = load(run)
    for precision in ("float32", "bfloat16"):
        with loaded.environment(precision).autocast():
            assert isinstance(with_package(loaded), PackagedModel)


@pytest.mark.usefixtures("built")
def test_each_batch_size_has_a_package(run: Path) -> None:
    for batch in (1, 2, 1):
        api.compile(load(run), batch=batch)
    found = with_package(load(run))
    assert isinstance(found, PackagedModel)
    assert sorted(found.steps) == [1, 2]


def test_a_damaged_package_is_not_used_and_a_line_tells_so(
    run: Path, built: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = api.compile(load(run))
    assert built
    monkeypatch.undo()
    monkeypatch.setenv("REGARD_CACHE", str(made.parent))
    with pytest.warns(UserWarning, match="can't be loaded"):
        assert isinstance(with_package(load(run)), LanguageModel)


@pytest.mark.usefixtures("built")
def test_a_damaged_package_is_compiled_again(run: Path) -> None:
    made = api.compile(load(run))
    (made / DESCRIPTION).write_bytes(b"")
    assert api.compile(load(run)) == made
    assert isinstance(with_package(load(run)), PackagedModel)


def test_a_package_whose_deletion_was_killed_is_compiled_again(
    run: Path, built: list[Path]
) -> None:
    made = api.compile(load(run))
    (made / PACKAGE).unlink()
    package._read.cache_clear()
    assert isinstance(with_package(load(run)), LanguageModel)
    assert api.compile(load(run), again=False) == made
    assert len(built) == 2


@pytest.mark.filterwarnings("ignore:.*no native code")
def test_generate_compiles_for_all_rows_once(regard: Command, run: Path, built: list[Path]) -> None:
    prompts = ("generate", run, PROMPT[0], PROMPT[0], "--max-new-tokens", "2", "--raw")
    plain = succeeded(regard(*prompts)).out
    assert not built
    for _ in range(2):
        assert succeeded(regard(*prompts, "--compile", "--device", "cpu")).out == plain
        assert len(built) == 1
    for choice, rows in (("--num-return-sequences", 2), ("--num-beams", 3)):
        succeeded(regard(*prompts, "--compile", choice, str(rows)))
        assert sorted(with_package(load(run)).steps)[-1] == 2 * rows
    assert len(built) == 3


@pytest.mark.usefixtures("built")
def test_hooks_and_training_mode_are_the_model_s(run: Path) -> None:
    api.compile(load(run))
    hooked, training = load(run), load(run)
    hooked.language_model.head.register_forward_hook(lambda *_: None)
    training.model.train()
    assert isinstance(with_package(hooked), LanguageModel)
    assert isinstance(with_package(training), LanguageModel)


@pytest.mark.slow
def test_without_a_compiler_one_line_says_so(regard: Command, run: Path) -> None:
    from torch._inductor import config

    with config.patch({"cpp.cxx": ("/nowhere/compiler",)}):
        refused(regard("compile", run), "the C++ compiler fails", "install g++")
    assert not list(cache_folder("packages").iterdir())


@pytest.mark.slow
def test_native_code_writes_the_same_tokens_of_rows_of_unequal_length(
    regard: Command, run: Path
) -> None:
    def texts(run: Run) -> list[str]:
        return api.generate(run, ["Ada was", "A", "Ada"], max_new_tokens=6, raw=True)

    plain = texts(load(run))
    outcome = succeeded(regard("compile", run, "--batch", "3"))
    assert Path(outcome.out.strip(), PACKAGE).is_file()
    loaded = load(run)
    found = with_package(loaded)
    assert isinstance(found, PackagedModel)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert texts(loaded) == plain
    assert found.steps
    # Weights that change in memory are those of the package, too.
    with torch.no_grad():
        loaded.language_model.head.weight.neg_()
    compiled = texts(loaded)
    shutil.rmtree(outcome.out.strip())
    assert texts(loaded) == compiled != plain


@pytest.mark.slow
def test_native_code_in_bfloat16_follows_the_weights(run: Path) -> None:
    loaded = load(run)
    api.compile(loaded, precision="bfloat16")
    with loaded.environment("bfloat16").autocast():
        found = with_package(loaded)
        assert isinstance(found, PackagedModel)
        first = found.extend(torch.tensor([[5]]), found.init_state(1, 3))[1]
        before, _ = found.extend(torch.tensor([[5]]), first)
        with torch.no_grad():
            loaded.language_model.head.weight.neg_()
        found = with_package(loaded)
        first = found.extend(torch.tensor([[5]]), found.init_state(1, 3))[1]
        after, _ = found.extend(torch.tensor([[5]]), first)
    assert found.steps
    torch.testing.assert_close(after, -before)


def test_only_language_models_are_compiled(monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    loaded = load(run)
    monkeypatch.setattr(loaded, "model", torch.nn.Linear(1, 1))
    with pytest.raises(UserError, match="causal language model"):
        api.compile(loaded)


@pytest.mark.slow
def test_native_code_of_moba_adds_each_key_to_its_own_block(tmp_path: Path) -> None:
    """In float64, with the states of convolutions."""
    # The token of the exported example, the fifth, is in the first block.
    moba = MobaConfig(block_size=8, blocks=2)
    model = tiny_model(attention=moba, context_length=40, norm="post", short_conv=3)
    drawn = torch.Generator().manual_seed(0)
    ids = torch.randint(model.head.out_features, (1, 40), generator=drawn)
    found = PackagedModel(model, {1: build(model, 1, tmp_path / PACKAGE)})
    with torch.no_grad():
        (_, plain), (_, packaged) = (
            m.extend(ids[:, :8], m.init_state(1, 40)) for m in (model, found)
        )
        for token in ids[:, 8:].split(1, 1):
            expected, plain = model.extend(token, plain)
            logits, packaged = found.extend(token, packaged)
            torch.testing.assert_close(logits, expected)
    assert found.steps


def test_a_run_that_is_not_saved_is_refused(run: Path) -> None:
    with pytest.raises(UserError, match="isn't a saved run"):
        api.compile(replace(load(run), path=Path("hf:gone")))


def test_generation_needs_no_home_folder(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(run / "config.toml" / "cache"))
    assert package._packages() == []
