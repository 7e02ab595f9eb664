"""Other operating systems, as far as a module asks which one it runs on."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest


def imitate(platform: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace `sys.platform` in one module."""
    monkeypatch.setattr(module, "sys", SimpleNamespace(**{**vars(sys), "platform": platform}))


def refuse_to_replace_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `Path.replace` fail where the target is a folder, as on Windows."""
    replace = Path.replace

    def replace_file(source: Path, target: Path) -> Path:
        if target.is_dir():
            raise PermissionError
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", replace_file)
