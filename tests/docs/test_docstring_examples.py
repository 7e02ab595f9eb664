"""Every public function and class has an example in its docstring, and all examples run."""

import doctest
import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from docstring_examples import write_runs

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
public_api = import_module("public_api")

COMPLETE = tuple(package for package in public_api.PACKAGES if package != "regard")
"""Packages whose names all have an example."""
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def names_of(package: str) -> dict[str, Any]:
    """The public names of a package, with what they name."""
    module = import_module(package)
    return {name: getattr(module, name) for name in module.__all__}


def examples_of(package: str, names: dict[str, Any]) -> list[doctest.DocTest]:
    """The examples of each public function and class, which know the given names."""
    found = {name: x for name, x in names_of(package).items() if public_api.has_docstring(x)}
    parse = doctest.DocTestParser().get_doctest
    return [
        parse(inspect.getdoc(x) or "", names, f"{package}.{name}", None, None)
        for name, x in found.items()
    ]


@pytest.mark.parametrize("package", COMPLETE)
def test_every_public_function_and_class_has_an_example(package: str) -> None:
    assert not [one.name for one in examples_of(package, {}) if not one.examples]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs of the examples."""
    path = tmp_path_factory.mktemp("examples")
    write_runs(path)
    return path


@pytest.mark.parametrize("package", public_api.PACKAGES)
def test_the_examples_print_what_they_say(
    package: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    given = {"torch": torch, "regard": regard, "run": regard.load("tiny")}
    wrong: list[str] = []
    for one in examples_of(package, names_of(package) | given):
        torch.manual_seed(0)
        doctest.DocTestRunner(optionflags=OPTIONS).run(one, out=wrong.append)
    assert not wrong, "".join(wrong)
