"""Speed, memory, and the part of a GPU's operations that is used."""

from dataclasses import replace

import msgspec
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.attention.kernel_config import EluConfig
from regard.data.batch import Batch, PaddedIds
from regard.environment import ExecutionEnvironment
from regard.models.builders import LanguageModel, make_model
from regard.models.config import DecoderConfig, EncoderConfig, ModelConfig, RecurrentConfig
from regard.models.head_config import LMHeadConfig, MaskedLMHeadConfig
from regard.models.pattern import LayerConfig
from regard.training import throughput
from regard.training.throughput import Throughput, TrainingCost, peak_of

SIZE = DecoderConfig(
    context_length=16, n_layers=2, n_heads=3, d_model=12, head_dim=5, dropout=0.0, d_ff=20
)
CPU = ExecutionEnvironment(torch.device("cpu"), torch.float32)


def full_batch(rows: int, n: int) -> Batch:
    """Rows without padding, in which every token is a target."""
    ids = torch.randint(11, (rows, n))
    return Batch({"input_ids": PaddedIds(ids, torch.full((rows,), n), 0)}, ids.clone())


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_operations_are_those_that_torch_counts(gated: bool, tied: bool) -> None:
    config = msgspec.structs.replace(SIZE, gated=gated, tie_head=tied)
    with torch.device("meta"):
        model = LanguageModel(config, 11)
    batch = full_batch(4, 16).to(torch.device("meta"))
    with FlopCounterMode(display=False) as counter:
        # The formula counts all pairs, as torch's counter does of its fused kernels.
        model.head(model.body(batch.input_ids)).sum().backward()
    cost = TrainingCost.of(model, config)
    assert cost is not None
    assert cost.operations(batch) == counter.get_total_flops()


def test_only_scored_tokens_count_for_the_head() -> None:
    model = LanguageModel(SIZE, 11)
    cost, batch = TrainingCost.of(model, SIZE), full_batch(2, 8)
    assert cost is not None
    fewer = cost.operations(batch) - cost.operations(batch.without_loss())
    assert fewer == 6 * 16 * model.head.weight.numel()


@pytest.mark.parametrize(
    "config",
    [
        msgspec.structs.replace(SIZE, attention=EluConfig()),
        msgspec.structs.replace(SIZE, pattern=(LayerConfig(window=4), LayerConfig())),
        msgspec.structs.replace(SIZE, short_conv=2),
        msgspec.structs.replace(SIZE, canon="A"),
        RecurrentConfig(context_length=16),
    ],
    ids=["kernel", "windows", "convolution", "canon", "recurrent"],
)
def test_other_models_have_no_formula(config: ModelConfig) -> None:
    assert TrainingCost.of(make_model(config, LMHeadConfig(), 11), config) is None


def test_encoders_have_the_formula_and_frozen_weights_have_none() -> None:
    config = EncoderConfig(context_length=16, n_layers=1, n_heads=2, d_model=8)
    model = make_model(config, MaskedLMHeadConfig(), 11)
    assert TrainingCost.of(model, config) is not None
    model.head.requires_grad_(False)
    assert TrainingCost.of(model, config) is None


def test_a_gpu_is_known_by_its_whole_name() -> None:
    peaks = {
        "NVIDIA H100 80GB HBM3": 989e12,
        "NVIDIA H100 PCIe": 756e12,
        "NVIDIA H100 NVL": 835e12,
        "NVIDIA H200": 989e12,
        "NVIDIA A100-SXM4-80GB": 312e12,
        "NVIDIA L4": 121e12,
        "NVIDIA L40S": 362e12,
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb": None,
        "NVIDIA A10G": None,
        "Tesla V100-SXM2-16GB": None,
    }
    assert {name: peak_of(name) for name in peaks} == peaks


def test_on_a_cpu_there_are_speed_and_memory_and_no_utilization() -> None:
    measured = Throughput(LanguageModel(SIZE, 11), SIZE, CPU, 1)
    measured.add(full_batch(2, 8), 0.5)
    measured.add(full_batch(2, 16), 0.5)
    record = measured.record()
    assert record["tokens_per_second"] == 48
    assert record["memory_mb"] > 0
    assert "mfu" not in record
    measured.add(full_batch(1, 4), 2.0)
    assert measured.record()["tokens_per_second"] == 2, "of the steps since the last record"


def test_utilization_is_operations_over_the_peaks_of_all_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    monkeypatch.setitem(throughput.PEAKS, "H200", 1e9)
    monkeypatch.setattr(throughput, "peak_memory_mb", lambda _: float("nan"))
    environment = replace(CPU, device=torch.device("cuda"), dtype=torch.bfloat16)
    model, batch = LanguageModel(SIZE, 11), full_batch(2, 16)
    cost = TrainingCost.of(model, SIZE)
    assert cost is not None
    measured = Throughput(model, SIZE, environment, 2)
    seconds = cost.operations(batch) / 1e9 / 2 / 0.25
    for _ in range(3):
        measured.add(batch, seconds)
    record = measured.record()
    assert record["mfu"] == 0.25
    assert "memory_mb" not in record, "where the system doesn't report it"
