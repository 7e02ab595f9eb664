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
from docstring_examples import write_folders

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
public_api = import_module("public_api")

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SKIPPED = {
    "regard.compare": "trains in worker processes",
    "regard.compare_suite": "trains in worker processes",
    "regard.compile": "requires a C++ compiler",
    "regard.HuggingFaceModel": "requires the model in the local cache",
}
"""Examples that don't run, with the reason that their docstrings give."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the examples read."""
    path = tmp_path_factory.mktemp("examples")
    write_folders(path)
    return path


def names_of(package: str) -> dict[str, Any]:
    """The public names of a package, with what they name."""
    module = import_module(package)
    return {name: getattr(module, name) for name in module.__all__}


def docstrings_of(package: str) -> dict[str, str]:
    """The docstrings of the public functions and classes of a package, by their whole names."""
    return {
        f"{package}.{name}": inspect.getdoc(x) or ""
        for name, x in names_of(package).items()
        if public_api.has_docstring(x)
    }


@pytest.mark.parametrize("package", public_api.PACKAGES)
def test_every_public_function_and_class_has_an_example(package: str) -> None:
    for name, text in docstrings_of(package).items():
        assert doctest.DocTestParser().get_examples(text), name
        assert ("+SKIP" in text) == (name in SKIPPED), name
        assert SKIPPED.get(name, "") in text, name


@pytest.mark.parametrize("package", public_api.PACKAGES)
def test_the_examples_print_what_they_say(
    package: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    names = names_of(package) | {"torch": torch, "regard": regard, "run": regard.load("tiny")}
    wrong: list[str] = []
    for name, text in docstrings_of(package).items():
        torch.manual_seed(0)
        test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
        doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=wrong.append)
    assert not wrong, "".join(wrong)
