"""Figures shared by the reports of `regard demo` and `regard birthplaces`."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple

from regard.drawing import histogram, interval_chart, line_chart
from regard.evaluation.answers import Answer
from regard.evaluation.report import Figure
from regard.metrics import Interval
from regard.runs.run import Run
from regard.training.loggers import read_metrics


def accuracies(found: Mapping[str, Interval]) -> Figure:
    """Return the accuracy of each model on people in the text only."""
    bars = {name: astuple(interval) for name, interval in found.items()}
    svg = interval_chart(bars, x="accuracy on people in the text only", title="Accuracy")
    return Figure(svg=svg, caption="Accuracy on people in the text only, with 95 % intervals.")


def confidence(
    groups: Mapping[str, Sequence[Answer]], signal: str, *, title: str, caption: str
) -> Figure:
    """Return histograms of a signal for several groups of answers, without empty ones."""
    values = {name: [one.scores[signal] for one in group] for name, group in groups.items()}
    shown = {name: several for name, several in values.items() if several}
    return Figure(svg=histogram(shown, x=signal, title=title), caption=caption)


def loss_curves(runs: Mapping[str, Run], *, held_out: str | None = None) -> Figure:
    """Return the loss of each run against time, and the held-out loss of the run `held_out`."""
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
        svg=line_chart(
            curves, x="seconds of training", y="loss (nats a token)", title="Loss", log_y=True
        ),
        caption="Loss on the training batches, including questions"
        + (", and on held-out texts." if held_out else "."),
    )
