"""Messages about packages of extras."""

from pathlib import Path

import pytest

from regard.errors import UserError, require_packages


def test_a_package_that_can_not_be_imported_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_one.py").write_text("raise ImportError('needs tokenizers>=99')", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="needs broken-one, which can't be imported: needs tok"):
        require_packages("It needs", "extra", "broken_one")
