"""Precisions are chosen by measured speed; processors have names."""

import io
import platform
import time
from itertools import accumulate, chain, cycle
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from platforms import imitate
from regard import environment
from regard.environment import ExecutionEnvironment, bfloat16_gain
from regard.errors import UserError


@pytest.mark.parametrize(("gain", "dtype"), [(8.0, torch.bfloat16), (0.03, torch.float32)])
def test_auto_is_the_faster_precision(
    gain: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "bfloat16_gain", lambda _: gain)
    assert ExecutionEnvironment.choose("cpu", "auto").dtype == dtype


@pytest.mark.filterwarnings("always:--precision")
def test_an_emulated_precision_is_used_when_requested_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environment, "bfloat16_gain", lambda _: 0.05)
    with pytest.warns(UserWarning, match=r"^--precision bfloat16: .* 20 times as long"):
        chosen = ExecutionEnvironment.choose("cpu", "bfloat16")
    assert chosen.dtype == torch.bfloat16


@pytest.mark.filterwarnings("error:--precision")
def test_a_precision_in_hardware_is_used_without_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environment, "bfloat16_gain", lambda _: 2.0)
    assert ExecutionEnvironment.choose("cpu", "bfloat16").dtype == torch.bfloat16


def test_the_gain_is_measured_once_and_leaves_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    bfloat16_gain.cache_clear()
    monkeypatch.setattr(torch, "set_num_threads", lambda _: pytest.fail("slows later kernels"))
    gain = bfloat16_gain(torch.device("cpu"))
    assert 0 < gain < float("inf")
    monkeypatch.setattr(environment, "_gain", lambda *_: pytest.fail("measured again"))
    assert bfloat16_gain(torch.device("cpu")) == gain


def test_without_proc_a_processor_has_the_name_that_the_system_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Path, "open", Mock(side_effect=FileNotFoundError))
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert environment.processor_name(torch.device("cpu")) == "arm"


def test_a_gain_is_found_after_disturbed_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first four products in bfloat16 take as long as those in float32, the later a quarter."""
    times = chain(chain.from_iterable([(0.004, 0.004)] * 4), cycle((0.004, 0.001)))
    clock = accumulate(chain.from_iterable((0.0, one) for one in times))
    monkeypatch.setattr(environment, "_seconds", lambda _: next(clock))
    assert environment._gain(torch.device("cpu"), 2, 2) == pytest.approx(4)


def test_the_gain_is_measured_before_the_threads_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """More threads than cores wait for one another in small products."""
    calls: list[str] = []

    def gain(_: torch.device) -> float:
        calls.append("gain")
        return 2.0

    monkeypatch.setattr(torch, "set_num_threads", lambda n: calls.append(f"{n} threads"))
    monkeypatch.setattr(environment, "bfloat16_gain", gain)
    assert ExecutionEnvironment.choose("cpu", "auto", threads=64).dtype == torch.bfloat16
    assert calls == ["gain", "64 threads"]


def test_on_windows_the_gain_is_measured_by_a_fine_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a thread ticks every 16 ms there."""
    imitate("win32", environment, monkeypatch)
    monkeypatch.setattr(time, "thread_time", lambda: time.perf_counter() // 0.0156 * 0.0156)
    assert 0 < environment._gain(torch.device("cpu"), 256, 256) < float("inf")


def test_an_arm_processor_is_named_by_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n\nprocessor\t: 1\n"
    monkeypatch.setattr(Path, "open", lambda *_, **__: io.StringIO(facts))
    assert environment.processor_name(torch.device("cpu")) == "0x41 0xd40"


@pytest.mark.parametrize("precision", ["float16", "fp16"])
def test_an_unknown_precision_is_refused(precision: Any) -> None:
    with pytest.raises(UserError, match=rf"--precision {precision}: there are: auto, float32"):
        ExecutionEnvironment.choose("cpu", precision)
