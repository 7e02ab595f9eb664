"""regard serve, from the command line."""

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from regard.serve import server
from regard.serve.server import listen
from tiny import Command, refused, succeeded
from tiny_served import save_run


def test_runs_and_address_are_told(
    regard: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given none, all below the folder runs; Ctrl-C is the usual end."""
    for name in ("b", "nested/a"):
        save_run(folder / "runs" / name)
    monkeypatch.setattr(server._Server, "run", Mock(side_effect=KeyboardInterrupt))
    models, page, end = succeeded(regard("serve", "--port", "0")).out.splitlines()
    assert models == "Models: b, a"
    assert page.startswith("Page: http://127.0.0.1:")
    assert end == "Stopped."


def test_wrong_wishes_are_refused(regard: Command, folder: Path) -> None:
    refused(regard("serve"), "runs: holds no trained run")
    refused(regard("serve", "nowhere"), "nowhere: is not a run folder")
    refused(regard("serve", "--port", "99999"), "99999")
    save_run(folder / "run")
    with listen(0) as taken:
        port = taken.getsockname()[1]
        refused(regard("serve", "run", "--port", port), f"--port {port}: can't be used")


def test_an_edit_for_the_page_is_checked_first(regard: Command, folder: Path) -> None:
    save_run(folder / "run")
    file = folder / "edit.toml"
    file.write_text('[[edit]]\nkind = "zeroe"\nsite = "x"')
    done = regard("serve", "run", "--edit", file)
    refused(done, "edit.toml: ", "zeroe")
    assert not done.out
    file.write_text("# " + "long " * 2000)
    refused(regard("serve", "run", "--edit", file), "edit.toml")


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_a_missing_extra_is_named(
    missing: str, regard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("regard.serve")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    refused(regard("serve", "run"), missing, "pip install 'regard[serve]'")
