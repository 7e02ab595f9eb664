"""The bottleneck: case change by RNNs with attention and without, and by a Transformer.

Without attention, all that the decoder knows of the text is one state of the encoder: accuracy
falls with length, the sooner the smaller the state. With it, each character is looked up where it
stands: the map of the attention becomes a diagonal.

    python benchmarks/casing.py [--only NAME] [--out docs/figures]

Some 10 minutes on two cores. Prints a table and writes casing.json and casing.png.
"""

from typing import Any

import msgspec
import torch
from matplotlib.figure import Figure
from measure import MASK, PAD
from trained import options, store, stored, trained

from regard.data.batch import lengths_of, pad_rows
from regard.environment import ExecutionEnvironment
from regard.evaluation.tasks import predict
from regard.metrics import accuracy, exact_match
from regard.models.builders import SequenceToSequence
from regard.models.seq2seq import RecurrentEncoderDecoder
from regard.runs.run import Run
from regard.tasks.casing import CASES, CasingConfig
from regard.tasks.examples import Example

LENGTHS = range(8, 41, 4)
TEXTS = 100
"""Of each length."""
NEAR = 1
"""How far from the diagonal a weight may lie."""

_RNN = ["model.kind=rnn-encoder-decoder", "model.n_layers=1", "model.dropout=0"]
_RNN += ["model.bidirectional=true", "model.context_length=64"]
_RNN += ["training.lr=4e-3", "training.batch=32", "training.steps=700"]


def recurrent(width: int, place: str, *settings: str) -> list[str]:
    """Settings of an RNN encoder–decoder."""
    return [*_RNN, f"model.d_model={width}", f"task.place={place}", *settings]


ATTENTION = "model.attention.kind=softmax"
VARIANTS: dict[str, list[str]] = {
    "RNN with attention": recurrent(128, "first", ATTENTION),
    "RNN with attention, token last": recurrent(128, "last", ATTENTION),
    "RNN without, width 64": recurrent(64, "first"),
    "RNN without, width 128": recurrent(128, "first"),
    "RNN without, width 256": recurrent(256, "first"),
    "RNN without, width 128, token last": recurrent(128, "last"),
    "Transformer": [],
}
"""What is trained, and its settings."""


def texts(length: int, place: Any) -> list[Example]:
    """New texts of one length."""
    config = CasingConfig(shortest=length, longest=length, training=1, test=TEXTS, place=place)
    return list(config.make(10_000 + length).test)


def by_length(run: Run, environment: ExecutionEnvironment) -> dict[int, float]:
    """The share of texts of each length that are right, every character of them."""
    assert isinstance(run.recipe.task, CasingConfig)
    found = {}
    for length in LENGTHS:
        asked = texts(length, run.recipe.task.place)
        answers, _ = predict(run, asked, environment)
        right = [exact_match(a.text, q.answer or "") for a, q in zip(answers, asked, strict=True)]
        found[length] = accuracy(right).value
    return found


@torch.inference_mode()
def near_diagonal(run: Run) -> float | None:
    """The weight that a written character gives to the one it comes from and its neighbors."""
    assert isinstance(run.model, SequenceToSequence)
    body, task = run.model.body, run.recipe.task
    if not isinstance(body, RecurrentEncoderDecoder) or body.attention is None:
        return None
    assert isinstance(task, CasingConfig)
    asked = texts(40, task.place)
    sources = [run.tokenizer.encode(q.text) for q in asked]
    targets = [run.tokenizer.encode(q.answer or "") for q in asked]
    ids = pad_rows([[MASK, *target] for target in targets], PAD)
    weights = body.attention_weights(pad_rows(sources, PAD), lengths_of(sources), ids)[:, 0]
    shift = len(next(iter(CASES))) + 1 if task.place == "first" else 0
    masses = [
        float(row[i, max(i + shift - NEAR, 0) : i + shift + NEAR + 1].sum())
        for row, target in zip(weights, targets, strict=True)
        for i in range(len(target))
    ]
    return sum(masses) / len(masses)


def measured(name: str, environment: ExecutionEnvironment) -> dict[str, Any]:
    """Train one and test it."""
    with trained("casing", VARIANTS[name], environment) as (run, seconds):
        return {
            "settings": VARIANTS[name],
            "parameters": run.n_parameters,
            "seconds": seconds,
            "accuracy": by_length(run, environment),
            "near_diagonal": near_diagonal(run),
            "machine": environment.describe(),
        }


def drawn(found: dict[str, Any]) -> Figure:
    """Accuracy against length."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    panel = figure.subplots()
    for i, (name, one) in enumerate(found.items()):
        lengths = [int(length) for length in one["accuracy"]]
        style = "--" if "without" in name else "-"
        panel.plot(lengths, list(one["accuracy"].values()), style, marker="o", color=f"C{i}")
    panel.legend(list(found), fontsize="small")
    panel.set(xlabel="characters", ylabel="texts that are right in every character", ylim=(0, 1.03))
    panel.grid(alpha=0.3)
    return figure


def main() -> None:
    """Train all, or some."""
    given = options(__doc__, VARIANTS).parse_args()
    place = given.out / "casing.json"
    found = stored(place)
    environment = ExecutionEnvironment.choose("auto", "auto")
    for name in given.only or VARIANTS:
        found[name] = one = msgspec.to_builtins(measured(name, environment), str_keys=True)
        diagonal = one["near_diagonal"]
        shown = " ".join(f"{length}: {share:.2f}" for length, share in one["accuracy"].items())
        near = "" if diagonal is None else f", near the diagonal {diagonal:.3f}"
        print(f"{name}: {one['seconds']:.0f} s; {shown}{near}", flush=True)
        store(place, found, VARIANTS)
    drawn(found).savefig(given.out / "casing.png", dpi=150)


if __name__ == "__main__":
    main()
