"""Compiled packages: the step of one token as native code, made once and kept in the user's cache.

`compile` exports a language model's step by torch.export and compiles it by AOTInductor for one
batch size; `with_package` finds it. A package holds no weights: it computes with the model's.
"""

import shutil
import tempfile
import warnings
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec
import torch
from filelock import FileLock
from torch import nn
from torch.export import ExportedProgram

import regard
from regard.attention.base import product_dtype
from regard.decoding.prepare import has_hooks, prepare
from regard.decoding.step import (
    CompiledStep,
    PackagedModel,
    check_step,
    export_step,
    named_tensors,
    unsupported,
    warn_of_package,
)
from regard.environment import ExecutionEnvironment, Precision
from regard.errors import UserError, first_line
from regard.files import cache_folder, decode_json, fingerprint_of, sha256_of, write_file
from regard.models.builders import LanguageModel
from regard.runs.run import Run

# What a package is for


class Target(msgspec.Struct, frozen=True):
    """Everything that a package depends on."""

    weights: str
    """The sha256 of model.safetensors."""
    batch: int
    precision: str
    device: str
    torch: str
    regard: str
    machine: str
    """Processor and instructions, for which the code is compiled."""
    threads: int
    """Number of threads among which compiled loops are divided."""

    @property
    def folder(self) -> Path:
        """Folder of the package."""
        key = fingerprint_of(msgspec.json.encode(self))
        return cache_folder("packages") / f"package-{key}"


class Description(msgspec.Struct, frozen=True):
    """A package's package.json."""

    run: str
    """The run's folder, by which packages of older weights are found."""
    target: Target
    replaced: list[int]
    """Indices of the state's tensors that a step replaces; it writes into the others."""


REPLACEABLE = ("weights", "device", "torch", "regard")
"""Fields of a target in which a new package may differ from one that it replaces."""
WEIGHTS, PACKAGE, DESCRIPTION = "model.safetensors", "package.pt2", "package.json"


def _target(run: Run, batch: int) -> Target:
    weights = run.path / WEIGHTS
    status = weights.stat()
    return Target(
        weights=_sha256(weights, status.st_ino, status.st_size, status.st_mtime_ns),
        batch=batch,
        precision=str(product_dtype(next(run.model.parameters()))).removeprefix("torch."),
        device=str(run.device),
        torch=str(torch.__version__),
        regard=regard.__version__,
        machine=_machine(run.device),
        threads=torch.get_num_threads(),
    )


@cache
def _machine(device: torch.device) -> str:
    described = ExecutionEnvironment(device, torch.float32).describe()
    capabilities = [name for name, has in torch.cpu.get_capabilities().items() if has is True]
    parts = described["machine"], described["processor"], torch.backends.cpu.get_cpu_capability()
    return ", ".join([*map(str, parts), *sorted(capabilities)])


@lru_cache(maxsize=64)
def _sha256(path: Path, *_status: int) -> str:
    """Return the sha256 of a file, read again when its status changes."""
    return sha256_of(path)


# Packages on disk


def compile(
    run: Run, *, batch: int = 1, precision: Precision = "float32", again: bool = True
) -> Path:
    """Compile the decoding of one token for a batch size, and return the package's folder.

    Generation uses the package from then on. Packages of earlier weights of the run are deleted.
    Without `again`, an existing package is kept.

    Raises:
        UserError: the run isn't on the CPU or isn't saved, there is no compiler, or the model
            doesn't generate.
        UnsupportedError: the model's decoding can't be compiled.

    A test doesn't run this example, which requires a C++ compiler:

    >>> folder = regard.compile(run, batch=8)  # doctest: +SKIP
    """
    if batch < 1:
        raise UserError(f"compile: batch={batch}: expected 1 or more")
    if run.device.type != "cpu":
        raise UserError(
            f"compile: packages run on the CPU, not on {run.device}; choose --device cpu"
        )
    if has_hooks(run.model):
        raise UserError("compile: a package holds no edits and no hooks; compile without them")
    if not (run.path / WEIGHTS).is_file():
        raise UserError(
            f"compile: {run.path} isn't a saved run, and packages are found by its weights; save a "
            "Hugging Face model as a run by regard import-hf"
        )
    with run.environment(precision).autocast():
        target = _target(run, batch)
        if again or target.folder not in dict(_packages()):
            _store(run, target)
    return target.folder


def _store(run: Run, target: Target) -> None:
    """Compile a package, in the current precision of products, and store it."""
    folder = target.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".package-") as temporary:
        made = Path(temporary) / folder.name
        made.mkdir()
        _, replaced = build(run.language_model, target.batch, made / PACKAGE)
        described = Description(str(run.path.resolve()), target, replaced)
        write_file(made / DESCRIPTION, msgspec.json.encode(described))
        with FileLock(folder.parent / ".lock"):  # another process may store a package, too
            _remove_older(described)
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)


def build(model: LanguageModel, batch: int, path: Path) -> tuple[CompiledStep, list[int]]:
    """Write a checked package to a file, and return its step with the tensors that it replaces.

    Raises:
        UserError: there is no compiler.
        UnsupportedError: the model's decoding can't be compiled.
    """
    exported, replaced = export_step(model, batch)
    _compile(exported, path)
    step = _open(path, model)
    try:
        check_step(model, batch, step, replaced)
    except RuntimeError as error:
        raise unsupported(first_line(error)) from error
    return step, replaced


def _compile(exported: ExportedProgram, path: Path) -> None:
    from torch._inductor import aoti_compile_and_package

    settings = {"aot_inductor.package_constants_in_so": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            aoti_compile_and_package(exported, package_path=str(path), inductor_configs=settings)
    except Exception as error:  # the compiler's errors are of many kinds
        raise UserError(
            f"compile: the C++ compiler fails ({first_line(error)}); install g++ or name another "
            "in CXX; without a package, decoding is slower"
        ) from error


def _remove_older(new: Description) -> None:
    """Remove the packages of a run that a new one replaces, on this machine."""
    for folder, old in _packages():
        earlier = old.target.weights != new.target.weights
        may_differ = (*REPLACEABLE, *(("batch", "precision", "threads") if earlier else ()))
        if old.run == new.run and not _differences(old.target, new.target, may_differ):
            shutil.rmtree(folder, ignore_errors=True)


def _packages() -> list[tuple[Path, Description]]:
    """Return the stored packages; the folder is read again only when one was added or removed."""
    try:
        folder = cache_folder("packages")
        return _read(folder, folder.stat().st_mtime_ns)
    except (OSError, UserError):  # there is none, or the home folder can't be read
        return []


@lru_cache(maxsize=1)
def _read(folder: Path, _changed: int) -> list[tuple[Path, Description]]:
    found = []
    for path in folder.glob("package-*"):
        with suppress(OSError, ValueError):
            if (path / PACKAGE).is_file():  # else its deletion was killed
                found.append((path, decode_json((path / DESCRIPTION).read_bytes(), Description)))
    return found


def with_package(run: Run) -> Any:
    """Return the run's language model, with its compiled packages for this machine, if any.

    A package of this run that can't be used is named in a warning.

    Raises:
        UserError: the run isn't a causal language model.
    """
    model = run.language_model
    if model.training or has_hooks(model):
        return model
    steps: dict[int, tuple[CompiledStep, Sequence[int]]] = {}
    for folder, description in _usable(run):
        try:
            steps[description.target.batch] = (
                _open(folder / PACKAGE, model),
                description.replaced,
            )
        except (RuntimeError, KeyError) as error:
            warn_of_package(
                f"{folder} can't be loaded ({first_line(error)}); decoding goes on without it"
            )
    return PackagedModel(prepare(model), steps) if steps else model


def _usable(run: Run) -> list[tuple[Path, Description]]:
    """Return the packages for a run, on this machine."""
    packages = _packages()
    if not packages or not (run.path / WEIGHTS).is_file():
        return []
    here, path = _target(run, 1), str(run.path.resolve())
    mine = [p for p in packages if p[1].target.weights == here.weights]
    mine = mine or [p for p in packages if p[1].run == path]
    usable = [p for p in mine if not _differences(p[1].target, here)]
    if mine and not usable:
        differences = ", ".join(_differences(mine[0][1].target, here))
        warn_of_package(f"of {run.path} is for {differences}; decoding goes on without it")
    return usable


def _differences(target: Target, here: Target, ignored: Collection[str] = ("batch",)) -> list[str]:
    """Return descriptions of the fields in which a package's target differs from this one."""
    return [
        f"other {name}" if name in ("weights", "machine") else f"{name} {getattr(target, name)}"
        for name in Target.__struct_fields__
        if name not in ignored and getattr(target, name) != getattr(here, name)
    ]


_loaded: WeakKeyDictionary[nn.Module, dict[Path, Any]] = WeakKeyDictionary()
"""The loaded packages of each model, with the tensors that they compute with."""


def _open(package: Path, model: nn.Module) -> CompiledStep:
    """Return a package's step, which computes with the model's tensors as they are now.

    Raises:
        RuntimeError: the file is damaged.
        KeyError: the model lacks a tensor.
    """
    loaded = _loaded.setdefault(model, {})
    if package not in loaded:
        # As torch._inductor loads it, without the second that importing torch._inductor takes.
        make = cast(Any, torch._C._aoti.AOTIModelPackageLoader)
        loader = make(str(package), "model", False, 1, -1)
        loaded[package] = loader, []
    loader, bound = loaded[package]
    tensors = {f"model.{name}": tensor for name, tensor in named_tensors(model).items()}
    needed = {name: tensors[name].detach() for name in loader.get_constant_fqns()}
    if [x.data_ptr() for x in needed.values()] != [x.data_ptr() for x in bound]:
        loader.load_constants(needed, False, True, True)
        bound[:] = needed.values()
    step: CompiledStep = loader.boxed_run
    return step
