"""The code of docs/use-the-parts.md prints what the page says."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "use-the-parts.md"
BLOCKS = re.findall(
    r"^```python\n(.*?)^```\n+^```text\n(.*?)^```",
    PAGE.read_text(encoding="utf-8"),
    re.DOTALL | re.MULTILINE,
)


def test_every_block_of_code_has_its_output() -> None:
    assert len(BLOCKS) == PAGE.read_text(encoding="utf-8").count("```python") > 0


def test_the_code_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code, output in BLOCKS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)
        assert printed.getvalue().endswith(output), code
