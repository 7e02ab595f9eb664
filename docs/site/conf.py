"""Sphinx's settings of the documentation site; `build.py` beside this file writes the sources."""

import gc
import inspect
import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from public_api import PACKAGES
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import Config, GoogleDocstring

import regard

# Modules and trees of pages stay to the end: collect garbage seldom.
gc.freeze()
gc.set_threshold(50_000)

project = "Regard"
author = "The authors of Regard"
copyright = author
release = version = regard.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["**/__pycache__"]

# Pages are Markdown as GitHub reads it, notebooks too.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 6
nb_execution_mode = "cache"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_show_tb = True
NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
EXECUTED = os.environ.get("EXECUTED_NOTEBOOKS", "").split() or ["*"]
"""Patterns of the notebooks to execute; all by default."""
nb_execution_excludepatterns = [
    path.name
    for path in sorted(NOTEBOOKS.glob("*.ipynb"))
    if not any(path.match(f"{pattern}.ipynb") for pattern in EXECUTED)
]

# Docstrings are Google's, with Markdown's single backticks for code.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
html_theme = "furo"
html_title = f"Regard {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_theme_options = {"top_of_page_buttons": list[str]()}
html_copy_source = True  # llms.txt links to the Markdown
html_show_copyright = False
html_show_search_summary = False  # browsers forbid files to read others
html_permalinks_icon = "#"


# Docstrings and their references

GOOGLE = Config(napoleon_use_rtype=False)


def setup(app: Sphinx) -> None:
    """Register what Sphinx calls."""
    app.connect("autodoc-process-docstring", read_sections)
    app.connect("autodoc-process-signature", without_objects)
    app.connect("missing-reference", resolve)


def read_sections(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Read the sections of a docstring, such as Raises; of a class, also those of its constructor.

    Napoleon itself would take the words before the colon of an attribute's docstring for a type.
    """
    whole = [*lines, *constructor(obj)] if what == "class" else lines
    plain = [line.replace("|", r"\|") for line in whole]  # |x| is a number, not a substitution
    lines[:] = GoogleDocstring(plain, GOOGLE, what="object").lines()


def constructor(made: type) -> list[str]:
    """Return the lines of the docstring of a constructor, unless another project's is inherited."""
    function = made.__init__
    if not getattr(function, "__module__", "").startswith("regard."):
        return []
    return ["", *inspect.cleandoc(function.__doc__ or "").splitlines()]


def without_objects(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, arguments: str | None, result: str
) -> tuple[str | None, str]:
    """Write defaults that aren't Python, such as <factory>, as an ellipsis."""
    return arguments and re.sub(r"<[^<>]*>", "...", arguments), result


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.TextElement
) -> nodes.Node | None:
    """Link a type to its public name; leave the name of one that isn't public.

    A name that exists nowhere is a warning. Types of other projects have no links, since
    their pages would have to be fetched.
    """
    if node.get("refdomain") != "py":
        return None
    found = lookup(node["reftarget"])
    if found is None:
        return None
    public = PUBLIC.get(id(found))
    if public is None:
        return text
    python = env.domains.python_domain
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", public, node, text) or text


def lookup(name: str) -> Any:
    """Return what a name of an annotation or docstring stands for, or None."""
    module, _, last = name.rpartition(".")
    for place in [module] if module else UNQUALIFIED:
        try:
            return getattr(import_module(place), last)
        except (ImportError, AttributeError):
            continue
    return None


UNQUALIFIED = (
    *("builtins", "torch", "numpy", "matplotlib.figure", "transformers"),
    *("regard.errors", "regard.explorer.intercept", "regard.attention.gating"),
)
"""Modules of the names that appear without one, in shapes, in sections and for type checkers."""
PUBLIC = {
    id(getattr(import_module(package), name)): f"{package}.{name}"
    for package in reversed(PACKAGES)
    for name in import_module(package).__all__
}
"""Full public name by object; a name of `regard` goes first."""
