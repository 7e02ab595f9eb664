"""What people, files and TensorBoard are told."""

import json
import re
from pathlib import Path

import pytest

from regard.training.loggers import Bar, Lines, MetricsFile, make_loggers, read_metrics

RECORD = {"loss": 1.5, "tokens_per_second": 1234, "seconds_left": 7.0}


def line_of(at: int, **changed: object) -> str:
    record = {"step": at, "loss": 1.5, "tokens_per_second": 1234, "seconds": 0.1, **changed}
    return json.dumps(record) + "\n"


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line_of(1) + line_of(2) + '{"ste')
    assert [line["step"] for line in read_metrics(path)] == [1, 2]


DAMAGED = [b'{"step": 2', b'"step"', b"[2]", b'{"step": 2}', line_of(2).strip().encode() + b"\xff"]
DAMAGED += [
    line_of(2, **{name: "2"}).strip().encode()
    for name in ("step", "loss", "tokens_per_second", "seconds", "validation_loss")
]


def test_damaged_lines_are_left_out_with_one_warning(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for line in [*DAMAGED, b"[" * 100_000, b"", b"NaN", b"\0"]:
        path.write_bytes(line_of(1).encode() + line + b"\n" + line_of(3).encode() + line + b"\n")
        with pytest.warns(UserWarning, match=r"metrics.jsonl:2: is damaged and 1 more") as warned:
            assert [record["step"] for record in read_metrics(path)] == [1, 3], line[:99]
        assert len(warned) == 1, line[:99]


def test_going_on_cuts_off_what_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(map(line_of, range(1, 6))) + "{")
    MetricsFile(path, 3).log(json.loads(line_of(4)))
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3, 4]


def test_lines_come_at_tenths_and_with_validation(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines("training", 100, 0)
    for step in range(1, 101):
        lines.log({"step": step, **RECORD} | ({"validation_loss": 2.0} if step == 35 else {}))
    shown = capsys.readouterr().err.splitlines()
    assert 10 <= len(shown) <= 13
    assert "11/100 loss 1.500 · 1,234 tokens/s · 7 s left" in "\n".join(shown)
    assert "35/100 loss 1.500 · validation 2.000 · 7 s left" in "\n".join(shown)


@pytest.mark.parametrize(("terminal", "kind"), [(False, Lines), (True, Bar)])
def test_only_a_terminal_gets_a_bar(
    terminal: bool, kind: type[Lines | Bar], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    loggers = make_loggers(tmp_path, "training", 10, 0, quiet=False)
    assert [type(logger) for logger in loggers if isinstance(logger, Lines | Bar)] == [kind]
    for logger in loggers:
        logger.log({"step": 1, **RECORD})
        logger.close()


@pytest.mark.parametrize("logger", [Lines, Bar])
def test_progress_fits_80_columns(
    logger: type[Lines | Bar], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "80"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    measured = RECORD | {"memory_mb": 1361, "tokens_per_second": 123456}
    validated = measured | {"validation_loss": 5.535, "perplexity": 253.47}
    made = logger("training", 2000, 0)
    made.log({"step": 1000, **measured})
    made.log({"step": 2000, **validated})
    made.close()
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", capsys.readouterr().err)
    lines = re.split(r"[\r\n]", shown)
    assert max(map(len, lines)) <= 80
    assert "2000/2000 loss 1.500 · validation 5.535 · perplexity 253.47" in shown


def test_quiet_writes_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for logger in make_loggers(tmp_path, "training", 10, 0, quiet=True):
        logger.log({"step": 1, **RECORD})
        logger.close()
    assert capsys.readouterr() == ("", "")


def test_events_are_written_for_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard isn't installed")
    for logger in make_loggers(tmp_path, "training", 10, 0, quiet=True):
        logger.log({"step": 1, **RECORD})
        logger.close()
    assert list((tmp_path / "tensorboard").glob("events*"))
