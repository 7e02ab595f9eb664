"""Packages import one another one way; configuration imports no heavy library."""

import ast
import runpy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import regard
import regard.attention
import regard.positions

SOURCE = Path(regard.__file__).parent
LAYERS = (
    "errors drawing files italics logistic dropout device environment operating_system operations",
    "config toml",
    "attention courses data derivations positions",
    "metrics models text",
    "corpus tasks",
    "runs",
    "decoding edits explorer huggingface",
    "uncertainty evaluation",
    "training",
    "packing",
    "book comparison experiments studies exercises serve api",
    "cli",
    "__main__ __init__",
)
RANKS = {package: rank for rank, layer in enumerate(LAYERS) for package in layer.split()}
"""A package imports only packages of its own layer or below."""
FILES = sorted(SOURCE.rglob("*.py"))
HEAVY = ("torch", "matplotlib", "scipy", "jinja2")


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in FILES}


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imported(node: ast.AST, *, types: bool) -> Iterator[str]:
    """The modules of regard that some code imports, in functions too; with `types`, for types."""
    if isinstance(node, ast.Import):
        yield from (name.name for name in node.names)
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        for name in node.names:
            inside = f"{node.module}.{name.name}"
            yield inside if inside in MODULES else str(node.module)
    if is_for_types_only(node) and not types:
        return
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield from imported(child, types=types)


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def own_imports(file: Path, *, types: bool = True) -> set[str]:
    found = imported(tree_of(file), types=types)
    return {name for name in found if name.split(".")[0] == "regard"}


def test_every_package_has_a_rank() -> None:
    packages = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert packages - {"__pycache__", "py"} == set(RANKS)


def test_a_package_imports_only_what_lies_below() -> None:
    for module, file in MODULES.items():
        for name in own_imports(file) - {"regard"}:
            assert name in MODULES
            below = RANKS[package_of(name)] <= RANKS[package_of(module)]
            assert below, f"{module} imports {name}"


def test_the_lowest_packages_import_almost_nothing() -> None:
    for module, file in MODULES.items():
        package = package_of(module)
        if package in {"attention", "positions", "config", "errors", "files", "drawing"}:
            allowed = {"attention", "config", "device", "dropout", "errors", "italics", package}
            assert {package_of(name) for name in own_imports(file)} <= allowed, module


@pytest.mark.parametrize("name", ["calls", "head_scores", "intercept"])
def test_interception_and_scores_import_no_models(name: str) -> None:
    allowed = {"attention", "drawing", "errors", "explorer"}
    names = own_imports(MODULES[f"regard.explorer.{name}"])
    assert {package_of(name) for name in names} <= allowed


BACK = {
    "regard.attention.config": {f"regard.attention.{name}" for name in ("softcap", "softmax")},
    "regard.attention.kernel_config": {"regard.attention.kernel"},
    "regard.attention.score_config": {
        f"regard.attention.{name}"
        for name in (
            *("block_sparse", "differential", "forgetting", "latent", "linformer", "moba"),
            *("sigmoid", "softmax", "softmax_one", "stick_breaking", "synthesizer", "top_k"),
        )
    },
    "regard.studies.finding": {"regard.book.page"},
}
"""Imports inside functions that lead back to the module.

Configuration imports no torch until it builds a mechanism, which keeps its configuration. A
notebook shows a finding as the book does.
"""


def test_no_module_waits_for_itself() -> None:
    graph = {module: own_imports(file, types=False) for module, file in MODULES.items()}
    assert all(names <= graph[module] for module, names in BACK.items())
    # `import regard` alone is its version, which stands in no other module.
    needs = {m: names - {"regard", m} - BACK.get(m, set()) for m, names in graph.items()}
    list(TopologicalSorter(needs).static_order())


LIGHT = sorted(
    {"regard", "regard.errors", "regard.cli.main", "regard.cli.options", "regard.attention"}
    | {"regard.attention.registry", "regard.attention.custom", "regard.models"}
    | {"regard.runs.code", "regard.comparison.suite", "regard.text.pack", "regard.packing"}
    | {module for module in MODULES if module.rpartition(".")[2].startswith("config")}
    | {"regard.runs.recipe", "regard.runs.recipes", "regard.text.corpus"}
    | {"regard.text.tokenizer", "regard.text.template", "regard.exercises.check"}
    | {
        name
        for name in MODULES
        if name.startswith(("regard.corpus", "regard.courses", "regard.tasks"))
    }
)


def test_configuration_and_commands_import_no_heavy_library() -> None:
    """One process: a module that is clean after all others is clean alone."""
    code = f"""
import sys
from importlib import import_module
for name in {LIGHT!r}:
    import_module(name)
    heavy = sorted(set({HEAVY!r}) & set(sys.modules))
    if heavy:
        sys.exit(f"{{name}} imports {{heavy}}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_neither_a_compiler_nor_matplotlib_is_imported_before_its_use() -> None:
    """The compiler takes as long to import as torch itself, matplotlib a quarter of that."""
    code = """
import sys, regard.api, regard.cli.ask, regard.explorer.look
from regard.exercises.notebook import notebook
from regard.exercises.registry import EXERCISES
for group in EXERCISES.values():
    notebook(group, seed=0)
sys.exit(bool({'torch._dynamo', 'matplotlib'} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there() -> None:
    for name in regard.__all__:
        assert getattr(regard, name).__name__ == name
    with pytest.raises(AttributeError, match="nonsense"):
        _ = regard.nonsense


def test_public_names_complete_with_tab() -> None:
    for package in (regard, regard.attention, regard.positions):
        assert set(package.__all__) <= set(dir(package)), package


def test_imports_run_as_in_the_drawing() -> None:
    drawing = SOURCE.parents[1] / "docs" / "architecture_figure.py"
    layers = runpy.run_path(str(drawing))["LAYERS"]
    ranks = {
        box.rstrip("/").removesuffix(".py"): rank
        for rank, (_, boxes) in enumerate(reversed(layers))
        for box, _ in boxes
    }
    for module, file in MODULES.items():
        for name in own_imports(file):
            above, below = package_of(module), package_of(name)
            if {above, below} <= ranks.keys():
                assert ranks[below] <= ranks[above], f"{module} imports {name}"
