"""That the benchmarks measure what they say, at small sizes; no times are asserted."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmark_files import (
    attention,
    choices,
    computer,
    contestants,
    corpus_index,
    decoding_step,
    effects,
    gpu_attention,
    measure,
)

from regard.attention import Softmax
from regard.environment import ExecutionEnvironment

CPU = torch.device("cpu")
peers = pytest.mark.filterwarnings("ignore")  # what peers warn of when imported isn't ours


@pytest.fixture(autouse=True)
def _each_call_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "repeats_for", lambda *_: 1)


def test_every_call_is_timed_once_a_round_and_the_order_rotates() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}
    times = measure.interleaved(calls, 3, CPU)
    assert "".join(order) == "abcbcacab"
    assert {len(taken) for taken in times.values()} == {3}


def test_a_ratio_is_the_median_within_rounds() -> None:
    # One slow round, slow for both, changes nothing.
    found = measure.Ratio.of([1.0, 2.0, 300.0], [2.0, 4.0, 600.0])
    assert (found.low, found.median, found.high) == (0.5, 0.5, 0.5)


def test_peak_memory_is_exact() -> None:
    def call() -> torch.Tensor:
        first = torch.empty(1000)
        second = torch.empty(500)
        del first
        return torch.cat([second, torch.empty(100)])

    # 1000 and 500 numbers at once; later 500, 100 and both joined.
    assert measure.peak_bytes(call, CPU) == 4 * 1500
    x = torch.ones(1000, requires_grad=True)
    assert measure.peak_bytes(lambda: x.exp().sum(), CPU) >= 4000, "what backward holds counts"


def test_effects_are_those_of_32_heads_in_each_pair() -> None:
    patched, both = (call() for call in effects.calls(2, 5, CPU).values())
    assert patched.patching.shape == both.attribution.shape == (2, 32)
    assert patched.attribution is None
    assert (patched.patching == both.patching).all()
    assert both.control.shape == (2, 20)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_growth_is_the_fitted_power(power: float) -> None:
    lengths = [512, 1024, 4096]
    assert math.isclose(measure.exponent(lengths, [3 * n**power for n in lengths]), power)


def test_pairs_name_contestants() -> None:
    names = {contestant.name for contestant in contestants.CONTESTANTS}
    assert len(names) == len(contestants.CONTESTANTS)
    assert {name for pair in contestants.PAIRS for name in (pair.ours, pair.peer)} <= names
    assert {name for drawn in attention.DRAWN for name in drawn if name} <= names


def test_a_layer_costs_its_projections_too() -> None:
    inputs = contestants.Inputs(8, CPU)
    bare = contestants.bare(contestants.softmax)(inputs).cost("forward")
    layer = contestants.layer(contestants.softmax, out_bias=False)(inputs).cost("forward")
    assert layer.operations - bare.operations == 4 * 2 * 8 * 512 * 512
    assert layer.parameters == 4 * 512 * 512


@peers
@pytest.mark.parametrize("contestant", contestants.CONTESTANTS, ids=lambda c: c.name)
def test_every_contestant_runs(contestant: Any) -> None:
    if not contestant.installed:
        pytest.skip(f"needs {contestant.package}")
    inputs = contestants.Inputs(max(contestant.shortest, 64), CPU)
    work = contestant.make(inputs)
    assert work.forward().isfinite().all()
    assert all(gradient.isfinite().all() for gradient in work.training())


@pytest.mark.slow
def test_attention_measures_draws_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [c for c in contestants.CONTESTANTS if c.name in ("softmax", "SDPA", "FAVOR+", "BigBird")]
    monkeypatch.setattr(attention, "CONTESTANTS", few)
    rates = attention.Rates(operations=1e11, bytes=1e10)
    results = [
        result
        for n in (64, 128)
        for mode in attention.MODES
        for result in attention.at_length(n, mode, 1, CPU)
    ]
    compared = attention.compare([r for r in results if r.n == 64 and r.mode == "forward"])
    assert attention.time_table(compared).row_count == len(compared) > 0
    assert attention.cost_table(results[:3], rates).row_count == 3
    softmax = next(c for c in contestants.CONTESTANTS if c.name == "softmax")
    grown = [attention.growth(softmax, mode, results) for mode in attention.MODES]
    assert all(g.memory < 1.5 for g in grown)
    arguments = attention.argparse.Namespace(
        device="cpu", rounds=1, lengths=[64, 128], modes=attention.MODES
    )
    document = attention.document(arguments, rates, results, compared, grown)
    measure.save(tmp_path, "attention", document, attention.figure(results))
    written = json.loads((tmp_path / "attention.json").read_text(encoding="utf-8"))
    assert len(written["results"]) == len(results)
    assert (tmp_path / "attention.png").stat().st_size > 0


def test_decoding_measures_draws_and_writes(tmp_path: Path) -> None:
    steps, bandwidth = decoding_step.measured([16, 32], 1, CPU)
    assert [(s.name, s.context) for s in steps if s.floor] == [("softmax", 16), ("softmax", 32)]
    arguments = attention.argparse.Namespace(device="cpu", rounds=1)
    document = decoding_step.document(arguments, steps, bandwidth)
    measure.save(tmp_path, "decoding_step", document, decoding_step.figure(steps))
    assert decoding_step.step_table(steps, bandwidth).row_count == len(steps)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["gpu_attention.py", "--out", str(tmp_path)])
    threads = torch.get_num_threads()
    gpu_attention.main()
    torch.set_num_threads(threads)
    assert capsys.readouterr().out == "gpu_attention: needs an NVIDIA GPU: nothing measured\n"
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_row_compares_with_the_fastest_rival() -> None:
    yardsticks = gpu_attention.Yardsticks(products=1e15, float32_products=1e14, copy=1e12)
    case = gpu_attention.of(Softmax(), causal=False)
    seconds = {"ours": 2.0, "SDPA full, a": 1.0, "SDPA full, b": 3.0, "SDPA causal, a": 0.1}
    row = gpu_attention.row("ours", case, 1024, "forward", seconds, 0, yardsticks)
    assert (row.gain, row.possible) == (0.5, 1.0)
    assert math.isclose(row.of_products, row.operations / 2 / 1e15)


# Peers, where they are installed: ours computes the same from the same weights


def layers(ours: str, peer: str, n: int) -> tuple[Any, Any, Any]:
    """Our layer, the peer's, and tokens."""
    by_name = {contestant.name: contestant for contestant in contestants.CONTESTANTS}
    inputs = contestants.Inputs(n, CPU)
    mine, theirs = (by_name[name].make(inputs).run.func for name in (ours, peer))
    for projection, its in (("query", "to_q"), ("key", "to_k"), ("value", "to_v")):
        getattr(mine, projection).load_state_dict(getattr(theirs, its).state_dict())
    mine.out.load_state_dict(theirs.to_out.state_dict())
    return mine, theirs, inputs.tokens


@peers
@torch.no_grad()
def test_linformer_package_computes_the_same() -> None:
    pytest.importorskip("linformer")
    mine, theirs, tokens = layers("Linformer layer", "linformer package layer", 300)
    mine.attend.project_key[0] = theirs.proj_k.mT
    mine.attend.project_value[0] = theirs.proj_v.mT
    torch.testing.assert_close(mine(tokens), theirs(tokens))


@peers
@torch.no_grad()
def test_x_transformers_computes_the_same() -> None:
    pytest.importorskip("x_transformers")
    mine, theirs, tokens = layers("softmax layer", "x-transformers layer", 64)
    torch.testing.assert_close(mine(tokens), theirs(tokens))


@peers
@torch.no_grad()
def test_hugging_face_bigbird_needs_no_matrix() -> None:
    pytest.importorskip("transformers")
    inputs = contestants.Inputs(1024, CPU)
    outs = []
    for matrix in (True, False):
        torch.manual_seed(0)
        outs.append(contestants.hugging_face_bigbird(inputs, matrix=matrix).run())
    # Exact: the same operations on the same shapes.
    assert torch.equal(*outs)


def test_a_computer_is_described_by_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computer, "SIZES", {"cpu": 8})
    monkeypatch.setattr(computer, "COPIED", 1 << 10)
    monkeypatch.setattr(computer, "STEPS", 1)
    environment = ExecutionEnvironment(CPU, torch.float32)
    works = [computer.Work("sums", lambda: torch.ones(4, 5) @ torch.ones(5, 6), 7)]
    done = [computer.measured(work, CPU, rounds=1) for work in works]
    # 2 · 4 · 5 · 6 operations and 7 tokens in the same time.
    assert math.isclose(done[0].operations_per_second / done[0].tokens_per_second, 240 / 7)
    table = computer.table(environment, computer.product_rates(CPU), done)
    assert "| sums in float32 | " in table
    assert "products in bfloat16" in table


@pytest.mark.parametrize("kind", ["activations", "caches", "orthogonalization"])
def test_a_choice_computes_what_its_plain_path_does(kind: str) -> None:
    for pair in getattr(choices, kind)():
        found, expected = (call().flatten().sort().values for call in (pair.choice, pair.plain))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_by_products_is_the_fused_kernels(dtype: torch.dtype) -> None:
    pair = next(choices.short_rows(dtype))
    error = (pair.choice() - pair.plain()).abs().max()
    assert error <= 32 * torch.finfo(dtype).eps * pair.plain().abs().max()


def test_a_bias_is_on_the_device_of_the_inputs() -> None:
    inputs = contestants.Inputs(8, torch.device("meta"))
    bias = contestants.Alibi(heads=contestants.HEADS)
    work = contestants.bare(contestants.softmax, bias=bias)(inputs)
    assert work.run.keywords["bias"].slopes.is_meta


def test_a_refusal_without_a_message_is_reported() -> None:
    def fail() -> None:
        raise AssertionError

    assert gpu_attention.usable({"a": fail}) == ({}, {"a": "AssertionError: "})


def test_an_index_is_measured(tmp_path: Path) -> None:
    text = corpus_index.fictional_text(20_000)
    measured = corpus_index.measure(text, 20_000, tmp_path, number=5)
    assert 0 < 20_000 - measured.text < 1_000
    assert measured.file <= 9 * measured.text
    assert len(measured.queries) == 10
    assert corpus_index.table(measured).count("\n") == 9
