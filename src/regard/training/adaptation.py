"""Adaptation of trained weights: frozen parameters, and low-rank updates (LoRA)."""

from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regard.errors import UserError, alternatives
from regard.models.builders import Model
from regard.models.head_config import LMHeadConfig, MaskedLMHeadConfig
from regard.models.layers import CheckpointedModule
from regard.positions import Learned
from regard.runs.recipe import LoRAConfig, TrainingConfig
from regard.runs.run import Run
from regard.training.sources.base import require_parent


class LowRankUpdate(nn.Module):
    """W + α/r · B A (Hu et al., 2021, §4.1), where B is zero before training."""

    def __init__(self, weight: Float[Tensor, "out in"], config: LoRAConfig) -> None:
        super().__init__()
        n_out, n_in = weight.shape
        self.scale = config.alpha / config.rank
        # In float32, whatever the weight is in: small updates would be lost in bfloat16.
        self.lora_A = nn.Parameter(torch.empty(config.rank, n_in, device=weight.device))
        self.lora_B = nn.Parameter(torch.zeros(n_out, config.rank, device=weight.device))
        nn.init.kaiming_uniform_(self.lora_A, a=sqrt(5))  # as in the paper's code

    def forward(self, weight: Float[Tensor, "out in"]) -> Float[Tensor, "out in"]:
        """Return the adapted weight."""
        return weight + (self.scale * self.lora_B @ self.lora_A).to(weight.dtype)


def prepare_model(run: Run, config: TrainingConfig) -> None:
    """Freeze, adapt, checkpoint or convert parts of a run's model, as a configuration requires.

    Raises:
        UserError: the model has no layers to checkpoint; or to adapt it, it wasn't trained before,
            has no such layer, or nothing would be trained.
    """
    model = run.model
    if config.gradient_checkpointing:
        layers = [module for module in model.modules() if isinstance(module, CheckpointedModule)]
        if not layers:
            raise UserError(
                "training.gradient_checkpointing: requires a Transformer; leave it out, or set "
                "model.kind=decoder, encoder or encoder-decoder"
            )
        for layer in layers:
            layer.gradient_checkpointing = True
    if config.param_dtype == "bfloat16":
        _cast(model, torch.bfloat16)
    require_parent(config, "parent" in run.origin)
    if config.lora:
        _add_updates(run, config.lora)
    elif config.freeze:
        _freeze(model, config)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(
            f"training.freeze={config.freeze}: nothing is left to train: the head is tied to the "
            "embeddings, or has no weights; set training.freeze=embeddings, or training.lora.rank=8"
        )


def release(model: Model) -> None:
    """Undo `prepare_model`: low-rank updates are merged, weights are float32 and trainable."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
        if isinstance(module, CheckpointedModule):
            module.gradient_checkpointing = False
    model.requires_grad_(True)
    _cast(model, torch.float32)


def _cast(model: Model, dtype: torch.dtype) -> None:
    """Convert the parameters; tables of positions keep their precision."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def _freeze(model: Model, config: TrainingConfig) -> None:
    if config.freeze == "body":
        model.body.requires_grad_(False)
        return
    for module in model.modules():
        if isinstance(module, nn.Embedding | Learned):
            module.requires_grad_(False)


def _add_updates(run: Run, config: LoRAConfig) -> None:
    """Freeze all but the updates, and a head that doesn't score tokens.

    Raises:
        UserError: no layer has the name of a target, or a head that would be frozen is new,
            or the rank exceeds that of a layer.
    """
    body = run.model.body
    layers = {
        name: module for name, module in body.named_modules() if isinstance(module, nn.Linear)
    }
    known = sorted({name.rpartition(".")[2] for name in layers})
    if not known:
        raise UserError("training.lora: the body has no linear layers; leave it out")
    for target in config.targets:
        if target not in known:
            raise UserError(
                f"training.lora.targets: no linear layer {target!r}; {alternatives(target, known)}"
            )
    if isinstance(run.recipe.head, LMHeadConfig | MaskedLMHeadConfig):
        if any(name.startswith("head.") for name in run.origin.get("new_tensors", ())):
            raise UserError(
                f"training.lora: freezes the head, but {run.origin['parent']} lacks it; train it "
                "first without lora"
            )
        run.model.requires_grad_(False)
    body.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(run.recipe.seed)
        for name, layer in layers.items():
            if name.rpartition(".")[2] not in (config.targets or known):
                continue
            if config.rank > (most := min(layer.weight.shape)):
                raise UserError(
                    f"training.lora.rank={config.rank}: exceeds a layer's; at most {most}"
                )
            parametrize.register_parametrization(
                layer, "weight", LowRankUpdate(layer.weight, config)
            )
