"""The public API is what the documentation lists."""

import re
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
public_api = import_module("public_api")


def packages_with_a_list() -> set[str]:
    """Packages whose source assigns `__all__`."""
    files = (ROOT / "src" / "regard").rglob("__init__.py")
    return {
        ".".join(file.parent.relative_to(ROOT / "src").parts)
        for file in files
        if "\n__all__ = " in file.read_text(encoding="utf-8")
    }


def test_every_package_with_a_list_of_names_is_documented() -> None:
    assert packages_with_a_list() == set(public_api.PACKAGES)


def test_the_page_is_current_and_every_name_has_a_docstring() -> None:
    page = public_api.PAGE.read_text(encoding="utf-8")
    assert page == public_api.page(), "docs/reference/python.md: run `make reference`"
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == sum(len(import_module(name).__all__) for name in public_api.PACKAGES)
    for name, summary in rows:
        # Dataclasses without a docstring get their signature for one.
        assert summary, name
        assert not summary.startswith(f"{name}("), name
