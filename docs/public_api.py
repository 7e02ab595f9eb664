"""The public Python API: what `__all__` of these packages lists. `make reference`."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import get_origin

PAGE = Path(__file__).parent / "reference" / "python.md"
PACKAGES = (
    "regard",
    "regard.attention",
    "regard.positions",
    "regard.edits",
    "regard.decoding",
    "regard.courses",
    "regard.derivations",
    "regard.huggingface.transformers",
)


HEAD = """# Python API

A name is public if it is below, that is, in `__all__` of one of these packages. `make docs` builds
a site with the signature and the whole docstring of each. What their stability means:
[use the parts](../use-the-parts.md#stability).

Each docstring has an example, and a test runs them; those marked +SKIP start processes, or need a
compiler or a cached model. Examples assume `import torch`, `import regard` and `from PACKAGE import
*`. In them, `run` is a small run in the folder `tiny`, which answers where four people were born.
The folders `labels`, `tags`, `masked` and `target` have untrained runs, and `grid` has a
comparison.

*Written by `make reference` from the packages themselves.*
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return every public name with the first line of its docstring, by package."""
    return "\n".join([HEAD, *(section(package) for package in PACKAGES)])


def section(package: str) -> str:
    """Return the table of a package."""
    about = (import_module(package).__doc__ or "").partition("\n\n")[0]
    rows = [f"| `{name}` | {cell(text)} |" for name, text in summaries(package).items()]
    head = [f"## {package}", "", " ".join(about.split()), "", "| name | summary |", "|---|---|"]
    return "\n".join([*head, *rows, ""])


def cell(text: str) -> str:
    """Return text that fits the cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def summaries(package: str) -> dict[str, str]:
    """Return the public names of a package, each with the first sentence of its docstring."""
    module = import_module(package)
    return {name: summary(getattr(module, name)) for name in module.__all__}


def summary(value: object) -> str:
    """Return the first line of a docstring; of plain values, what they are."""
    if has_docstring(value):
        return (inspect.getdoc(value) or "").partition("\n")[0]
    return "type alias" if get_origin(value) else f"constant ({type(value).__name__})"


def has_docstring(value: object) -> bool:
    """Whether a public name is a class or function, neither a constant nor a type alias."""
    return inspect.isclass(value) or inspect.isroutine(value)
