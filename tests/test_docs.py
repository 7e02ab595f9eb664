"""What a user reads is whole."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from regard.attention.config import BUILT_IN, FEATURE_NAMES
from regard.cli.config import import_hf
from regard.huggingface.convert.families import FAMILIES

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_every_link_and_picture_is_there() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_nothing_is_left_to_be_filled_in() -> None:
    for page in PAGES:
        assert not re.search(r"@@|TODO|FIXME|XXX", page.read_text(encoding="utf-8")), page.name


def test_every_page_is_in_the_index() -> None:
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text(encoding="utf-8")
    for page in docs.glob("**/*.md"):
        if page.name != "README.md":
            assert f"({page.relative_to(docs)})" in index, page


def test_every_column_has_a_header() -> None:
    """Screen readers name the column of a cell."""
    header = re.compile(r"^(\|.*\|)\n\|(?: ?:?-+:? ?\|)+$", re.MULTILINE)
    for page in PAGES:
        for row in header.findall(page.read_text(encoding="utf-8")):
            assert all(cell.strip() for cell in row[1:-1].split("|")), f"{page.name}: {row}"


def test_records_are_those_of_their_pages() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[.*?\]\((docs/[^)#]+).*$", readme, re.MULTILINE)
    lines = [line for line in readme.splitlines() if line.startswith("| [")]
    assert len(rows) == len(lines) >= 4
    for path, line in zip(rows, lines, strict=True):
        page, results = (
            (ROOT / path).read_text(encoding="utf-8"),
            re.findall(r"\*\*(.+?)\*\*", line),
        )
        assert results
        assert all(result in page for result in results), line


def test_the_first_commands_are_those_of_the_goals() -> None:
    """Whose scripts a test plays."""
    readme, goals = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/goals.md")
    )
    commands = re.findall(r"^\$ (.*)$", readme, re.MULTILINE)
    assert len(commands) == 3
    assert all(f"\n{command} " in goals for command in commands)


_PAGES = "import json, make_reference; print(json.dumps(make_reference.pages()))"


def test_generated_pages_are_current() -> None:
    made = subprocess.run(
        [sys.executable, "-c", _PAGES],
        cwd=ROOT / "docs",
        capture_output=True,
        text=True,
        check=True,
    )
    for name, page in json.loads(made.stdout).items():
        stored = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert stored == page, f"docs/{name}: run `make reference`"


def test_every_mechanism_has_a_formula_and_a_paper() -> None:
    sources = runpy.run_path(str(ROOT / "docs" / "mechanism_sources.py"))["SOURCES"]
    assert list(sources) == list(BUILT_IN)
    for source in sources.values():
        assert source.formula
        assert source.paper.startswith("https://")
        assert not source.code or re.fullmatch(r"[\w-]+/[\w-]+(/(tree|blob)/\w+/\S+)?", source.code)


def test_the_table_of_mechanisms_names_every_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    titles = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))["FEATURE_TITLES"]
    assert {*titles, "value_heads"} == set(FEATURE_NAMES)


def test_the_drawing_of_the_packages_is_current() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "architecture_figure.py"))["figure"]()
    stored = (ROOT / "docs" / "figures" / "architecture.svg").read_text(encoding="utf-8")
    assert stored == made, "docs/figures/architecture.svg: run `make figures`"


def test_every_module_named_in_the_architecture_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[a-z_]+/)*(?:[a-z_]+\.(?:py|js|html)|[a-z_]+/))`", text)
    source = ROOT / "src" / "regard"
    missing = {path for path in named if not any((root / path).exists() for root in (source, ROOT))}
    assert not missing


def test_pruning_reads_no_file_of_text_pairs() -> None:
    for name in ("README.md", "docs/edits.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        pairs = set(re.findall(r"^regard (?:effects|faithfulness|paths) \S+ (\S+)", text, re.M))
        pruned = re.findall(r'(?:^regard prune \S+ |regard\.prune\(run, ")([^\s"]+)', text, re.M)
        assert pruned
        assert pairs.isdisjoint(pruned)


def test_the_help_of_import_names_every_family() -> None:
    said = re.sub(r"\W", "", import_hf.help or "").lower()
    for kind in FAMILIES:
        family = kind.removesuffix("_text").replace("_", "")
        assert ("gemma1to3" if family.startswith("gemma") else family) in said, kind
