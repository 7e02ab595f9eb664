"""Files are written whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from platforms import imitate, refuse_to_replace_folders
from regard import files
from regard.files import write_file, write_folder


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_file(pipe, b"text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert pipe.is_fifo()


def test_windows_flushes_no_folder_and_replaces_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, folders can be neither opened nor replaced."""
    refuse_to_replace_folders(monkeypatch)
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("a folder is opened"))
    imitate("win32", files, monkeypatch)
    (tmp_path / "folder").mkdir()
    write_folder(tmp_path / "folder", {"a": b"text"})
    assert (tmp_path / "folder" / "a").read_bytes() == b"text"
    with pytest.raises(OSError, match="not empty"):
        write_folder(tmp_path / "folder", {"b": b"text"})


def test_two_processes_may_write_a_file_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, publish = tmp_path / "table.csv", files.publish

    def late(temporary: Path, target: Path) -> None:
        with monkeypatch.context() as other:
            other.setattr(files, "publish", publish)
            other.setattr(os, "getpid", lambda: 2**22 + 1)  # above the highest of Linux
            write_file(path, b"of the other process")
        publish(temporary, target)

    monkeypatch.setattr(files, "publish", late)
    write_file(path, b"own")
    assert path.read_bytes() == b"own"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="has no /dev/stdout")
def test_redirected_output_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    link, out = tmp_path / "link", tmp_path / "out.txt"
    link.symlink_to("/dev/stdout")
    code = (
        "import sys; from pathlib import Path; from regard.files import write_file; "
        "print('a', flush=True); write_file(Path(sys.argv[1]), b'b\\n'); print('c')"
    )
    with out.open("wb") as file:
        subprocess.run([sys.executable, "-c", code, str(link)], stdout=file, check=True)
    assert out.read_text("utf-8") == "a\nb\nc\n"
    assert link.is_symlink()
