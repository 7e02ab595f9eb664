"""How training went, drawn."""

from collections.abc import Mapping

from regard.evaluation import figures
from regard.evaluation.report import Figure
from regard.runs.run import Run
from regard.training.loggers import read_metrics


def loss_curves(runs: Mapping[str, Run], *, held_out: str | None = None) -> Figure:
    """The loss of each run against time, and the held-out loss of the one named."""
    curves = {}
    for name, run in runs.items():
        records = read_metrics(run.path / "metrics.jsonl")
        if records:
            curves[name] = ([r["seconds"] for r in records], [r["loss"] for r in records])
        measured = [r for r in records if "validation_loss" in r]
        if name == held_out and measured:
            losses = [r["validation_loss"] for r in measured]
            curves[f"{name}, held-out text"] = ([r["seconds"] for r in measured], losses)
    return Figure(
        svg=figures.line_chart(
            curves, x="seconds of training", y="loss (nats a token)", title="Loss", log_y=True
        ),
        caption="Loss on the training batches, questions among them"
        + (", and on held-out texts." if held_out else "."),
    )
