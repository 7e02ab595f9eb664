"""The loss and gradients of a step."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from plans import plan_pretraining, plan_task
from regard import device
from regard.attention import KernelAttention
from regard.data import IGNORE
from regard.data.batch import Batch, PaddedIds, RowFormat
from regard.data.causal import CausalDataset, CausalExample
from regard.errors import NormalizerError, RegardError
from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig
from regard.training.optimizers import clip_gradients
from regard.training.step import mean_loss
from tiny import BIOGRAPHIES, MODEL
from tiny_tasks import CPU, SETTINGS, add_gradients, task_recipe

CONFIG = DecoderConfig(context_length=16, n_layers=1, n_heads=2, d_model=8, dropout=0.0)


def make_model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(CONFIG, 11).double()


def examples(lengths: list[int]) -> Batch:
    """Rows of very different lengths, so that a mean of means would be wrong."""
    draw = torch.Generator().manual_seed(1)
    rows = [torch.randint(2, 11, (n,), generator=draw).tolist() for n in lengths]
    made = [CausalExample(row, [i % 3 > 0 for i in range(len(row))]) for row in rows]
    return CausalDataset([], RowFormat(16, 0)).collate(made)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(st.lists(st.integers(3, 16), min_size=2, max_size=6), st.integers(2, 6))
def test_accumulation_equals_one_big_batch(lengths: list[int], parts: int) -> None:
    batch, whole, split = examples(lengths), make_model(), make_model()
    loss = add_gradients(whole, batch)
    loss_in_parts = add_gradients(split, batch, parts)
    assert loss_in_parts == pytest.approx(loss, rel=1e-6)  # summed in float32
    for one, other in zip(whole.parameters(), split.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-5, atol=1e-8)


def test_loss_is_the_mean_over_targets_and_nothing_else() -> None:
    batch, model = examples([16, 5, 9]), make_model()
    log_p = model(batch.input_ids).log_softmax(-1).detach()
    losses = [
        -float(log_p[r, t, batch.labels[r, t]])
        for r in range(batch.input_ids.shape[0])
        for t in range(batch.input_ids.shape[1])
        if batch.labels[r, t] != IGNORE
    ]
    # The loss itself is taken in float32, whatever the model's precision.
    assert add_gradients(model, batch) == pytest.approx(sum(losses) / len(losses), rel=1e-6)
    assert mean_loss(model, [batch], CPU) == pytest.approx(sum(losses) / len(losses), rel=1e-6)


@torch.no_grad()
def test_gradients_are_computed_where_they_are_off() -> None:
    """As in notebooks that look inside models."""
    model = make_model()
    add_gradients(model, examples([5]))
    assert all(weight.grad is not None for weight in model.parameters())


def test_what_stands_in_the_padding_does_not_matter() -> None:
    batch, model = examples([16, 5]), make_model()
    texts = batch.inputs["input_ids"]
    other = PaddedIds(texts.ids.clone(), texts.lengths, pad=7)
    other.ids[1, 6:] = 7
    changed = Batch({"input_ids": other}, batch.labels)
    # Exact: the shapes are the same, and what is hidden has a weight of 0.
    assert torch.equal(model.loss(batch), model.loss(changed))


def test_clipping_scales_to_the_limit_and_tells_the_norm() -> None:
    batch, model = examples([16, 9]), make_model()
    loss = add_gradients(model, batch)
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    norm = float(torch.stack([g.square().sum() for g in gradients]).sum().sqrt())
    assert clip_gradients(dict(model.named_parameters()), norm / 10, loss, 1) == pytest.approx(norm)
    after = sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None)
    assert after**0.5 == pytest.approx(norm / 10, rel=1e-4)


def test_a_counted_normalizer_stops_the_step_before_the_weights_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As compiled code and GPUs count them."""
    plan = plan_pretraining(
        BIOGRAPHIES * 4, tmp_path / "run", "default", [*MODEL, "model.attention.kind=elu"]
    )
    before = {name: p.detach().clone() for name, p in plan.run.model.named_parameters()}

    def count(kernel: KernelAttention, total: Tensor) -> None:
        kernel.nonpositive += (total[0, 0, 0] > 0).sum()

    monkeypatch.setattr(KernelAttention, "_require_positive", count)
    named = r"step 1: in body\.layers\.0\.self_attention\.attention, the weights of \d+ queries"
    with pytest.raises(NormalizerError, match=named):
        plan.execute(SETTINGS)
    for name, parameter in plan.run.model.named_parameters():
        assert torch.equal(parameter, before[name])


def test_validation_reads_parts_as_small_as_those_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("data.validation=0.5", "training.batch=8", "training.steps=1")

    def validation_loss(out: str) -> tuple[float, int]:
        plan = plan_pretraining(BIOGRAPHIES * 4, tmp_path / out, "default", [*MODEL, *settings])
        tokens: list[int] = []
        plan.run.model.body.register_forward_pre_hook(
            lambda body, inputs: None if body.training else tokens.append(inputs[0].numel())
        )
        loss = plan.execute(SETTINGS).best_loss
        assert loss is not None
        return loss, max(tokens)

    loss, whole = validation_loss("whole")
    monkeypatch.setattr(device, "PART_BYTES", 256)
    loss_in_parts, part = validation_loss("parts")
    assert part < whole / 3
    assert loss_in_parts == pytest.approx(loss, rel=1e-5)


def test_a_full_memory_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried\nmore")

    monkeypatch.setattr("regard.training.step.accumulate_gradients", fail)
    made = plan_task(tmp_path / "run", task_recipe("casing", "decoder"))
    with pytest.raises(RegardError, match=r"memory is full \(CUDA .*training\.accumulation"):
        made.execute(SETTINGS)
