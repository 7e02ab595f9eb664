"""On a CPU, nothing multiplies in less than the precision of its environment."""

import pytest
import torch

from products import seen_products
from tiny import MODEL, STEPS, Command

WIDE = {torch.float32, torch.float64}
MUON = ["training.optimizer.kind=muon", "training.steps=2"]
QUESTION = "Where was Ada Finch born?"
COMMANDS = {
    "pretrain": ["pretrain", "text.txt", "--out", "new", *MODEL, *STEPS],
    "muon": ["pretrain", "text.txt", "--out", "new", *MODEL, *STEPS, *MUON],
    "finetune": ["finetune", "pairs.tsv", "--from", "run", "--out", "new", "training.epochs=1"],
    "evaluate": ["evaluate", "run", "pairs.tsv"],
    "generate": ["generate", "run", QUESTION],
    "beam search": ["generate", "run", QUESTION, "--num-beams", "2"],
    "ask": ["ask", "run", QUESTION],
    "look": ["look", "run", "Ada Finch was born in Rome."],
}
TRAINING = {"pretrain", "muon", "finetune"}


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_multiply_in_float32(name: str, regard: Command) -> None:
    precision = ["--precision", "float32"] if name in TRAINING else []
    with seen_products() as seen:
        assert regard(*COMMANDS[name], *precision).code == 0
    assert seen
    assert seen <= WIDE


def test_narrow_products_are_seen() -> None:
    layer, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    with seen_products() as seen, torch.autocast("cpu", torch.bfloat16):
        layer(x)
    assert torch.bfloat16 in seen
