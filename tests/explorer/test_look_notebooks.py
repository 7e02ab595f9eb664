"""Views in notebooks: what a reader sees of them in JupyterLab, and in the HTML of nbconvert."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FrameLocator, Locator, Page

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
SHOWN = """
import sys
sys.path += {paths}
from tiny_views import tiny_view
tiny_view(title={title!r}, seed={seed})
"""
SECONDS = 180
"""That a server may take until it answers, on a machine with much else to do."""


def python(folder: Path, *arguments: str) -> None:
    """Run a module where nothing of the user's is read or written."""
    command = [sys.executable, "-m", *arguments]
    subprocess.run(command, check=True, cwd=folder, env=homeless(folder), capture_output=True)


def homeless(folder: Path) -> Mapping[str, str]:
    """The environment, with a home of its own for all that Jupyter keeps."""
    of_jupyter = {name: value for name, value in os.environ.items() if "JUPYTER" not in name}
    return {**of_jupyter, "HOME": str(folder / "home"), "JUPYTER_PLATFORM_DIRS": "1"}


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A notebook that was run, with two views."""
    if find_spec("nbconvert") is None:
        pytest.skip("nbconvert isn't installed")
    place = tmp_path_factory.mktemp("notebook") / "views.ipynb"
    paths = [str(TESTS / "helpers"), str(TESTS / "explorer")]
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"cell-{seed}",
            "metadata": {},
            "execution_count": None,
            "source": SHOWN.format(paths=paths, title=title, seed=seed),
            "outputs": [],
        }
        for seed, title in enumerate(("first </iframe>", "second"))
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    whole = {"nbformat": 4, "nbformat_minor": 5, "cells": cells}
    place.write_text(json.dumps({**whole, "metadata": {"kernelspec": kernel}}), encoding="utf-8")
    python(place.parent, "nbconvert", "--to", "notebook", "--execute", "--inplace", place.name)
    return place


@pytest.fixture
def tab(browser: "Browser") -> "Iterator[Page]":
    """A page that reaches this machine alone."""
    context = browser.new_context(viewport={"width": 1200, "height": 1600})
    context.set_default_timeout(1000 * SECONDS)
    context.route(
        lambda url: url.startswith("http") and "//127.0.0.1" not in url, lambda way: way.abort()
    )
    yield context.new_page()
    context.close()


def both(found: "Locator") -> "list[Locator]":
    """What stands once in each view's output; JupyterLab shows one output after the other."""
    for one in (found.first, found.nth(1)):
        one.wait_for(state="attached", timeout=1000 * SECONDS)
    return found.all()


def frames(tab: "Page") -> "list[FrameLocator]":
    return [frame.content_frame for frame in both(tab.locator("iframe[srcdoc]"))]


def assert_both_work(tab: "Page") -> None:
    """Each view answers, and for itself."""
    first, second = frames(tab)
    first.get_by_role("heading", name="first </iframe>").wait_for()
    second.get_by_role("heading", name="second").wait_for()
    first.get_by_role("button", name="open layer 1, head 0").click()
    first.get_by_role("application").hover()
    first.get_by_role("status").filter(has_text=" attends to ").wait_for(state="attached")
    pressed = second.get_by_role("button", name="Matrix", exact=True).get_attribute("aria-pressed")
    assert pressed == "true"


def test_the_notebook_keeps_a_line_beside_the_page(notebook: Path) -> None:
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        (output,) = cell["outputs"]
        assert "".join(output["data"]["text/plain"]).startswith("View('")
        assert "".join(output["data"]["text/html"]).startswith("<iframe srcdoc=")


def test_views_appear_in_the_html_of_nbconvert(notebook: Path, tab: "Page") -> None:
    python(notebook.parent, "nbconvert", "--to", "html", notebook.name)
    tab.goto(notebook.with_suffix(".html").as_uri())
    assert_both_work(tab)


@contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """A server of a folder, on a free port; its address, to which a path can be added."""
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *("--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", "--IdentityProvider.token=secret"),
            f"--ServerApp.root_dir={folder}",
        ],
        env={**homeless(folder), "JUPYTER_RUNTIME_DIR": str(folder / "runtime")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield _address(server, folder / "runtime")
    finally:
        server.terminate()
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _address(server: "subprocess.Popen[bytes]", runtime: Path) -> str:
    """Where it listens, as it tells in a file once it does."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and server.poll() is None:
        for place in runtime.glob("jpserver-*.json"):
            text = place.read_text(encoding="utf-8")
            if text.endswith("}"):
                return str(json.loads(text)["url"])
        time.sleep(0.1)
    raise AssertionError("JupyterLab didn't start")


def test_views_appear_in_jupyterlab_where_the_notebook_is_trusted(
    notebook: Path, tab: "Page"
) -> None:
    if find_spec("jupyterlab") is None:
        pytest.skip("JupyterLab isn't installed")
    folder = notebook.parent
    with jupyterlab(folder) as address:
        tab.goto(f"{address}lab/tree/{notebook.name}?token=secret")
        told = tab.get_by_text("trust this notebook to see it")
        told.nth(1).wait_for(timeout=1000 * SECONDS)  # views appear one after the other
        assert told.count() == 2
        assert tab.locator("iframe[srcdoc]").count() == 0
        python(folder, "nbformat.sign", notebook.name)
        again = tab.context.new_page()
        again.goto(f"{address}lab/tree/{notebook.name}?token=secret")
        assert_both_work(again)
