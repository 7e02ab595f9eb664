"""Draw the figures of docs/birthplaces.md, into docs/figures.

The course's two schedules; what was reached, from birthplaces-modern.json (five seeds),
birthplaces-arms.json, which `regard birthplaces` has written, and birthplaces-tried.json, of which
the runs are taken that only were shorter; and the risk by coverage, from birthplaces-risk.json.
"""

import json
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.runs.recipes import RECIPES
from regard.training.optimizers import mingpt_factor

FIGURES = Path(__file__).parent / "figures"
TEXTS, ROW, EPOCHS = 2938, 127, 650
PUBLISHED = {"pretrained, as published": (12.4, 26.8), "rotary, as published": (24.4, 33.2)}
"""Lowest and highest accuracy that users of the course's code report, in percent."""
LONDON = 5.0


def schedules() -> Figure:
    """The learning rate of the course's pretraining, in its two versions."""
    drawn = Figure(figsize=(8, 3.2), layout="constrained")
    panel = drawn.subplots()
    epochs = np.arange(EPOCHS + 1)
    for over, label in ((200, "2021 to 2023: over 200 epochs"), (650, "later: over 650")):
        factors = [mingpt_factor(int(e) * TEXTS * ROW, over * TEXTS * 128) for e in epochs]
        panel.plot(epochs, RECIPES["course"].training.lr * np.array(factors), label=label)
    panel.set(xlabel="epoch of pretraining", ylabel="learning rate", ylim=(0, None))
    panel.grid(alpha=0.3)
    panel.legend()
    return drawn


SHORTER = ("a quarter of the steps", "half the steps")


def reached(
    seeds: list[dict[str, Any]], arms: list[dict[str, Any]], tried: dict[str, list[dict[str, Any]]]
) -> Figure:
    """Accuracy against the time of training, and of the three arms.

    The shorter runs shared the machine with other work, so their time is that of as many steps of
    the full runs.
    """
    drawn = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = drawn.subplots(1, 2, width_ratios=(3, 2))
    a_step = median(s["training_seconds"] / 60 / s["steps"] for s in seeds)
    shorter = [score for name in SHORTER for score in tried.get(name, [])]
    minutes = [s["steps"] * a_step for s in shorter] + [s["training_seconds"] / 60 for s in seeds]
    draw(left, shorter + seeds, minutes)
    left.set(xlabel="minutes of training", xlim=(0, 1.05 * max(minutes)))
    draw(right, arms, list(range(len(arms))))
    right.set_xticks(range(len(arms)), [s["arm"].replace("-", "\n", 1) for s in arms])
    right.set_xlim(-0.5, len(arms) - 0.5)
    for panel in (left, right):
        for (label, (low, high)), color in zip(PUBLISHED.items(), ("C1", "C2"), strict=True):
            panel.axhspan(low, high, alpha=0.2, label=label, color=color)
        panel.axhline(LONDON, color="0.5", linestyle=":", label="always London")
        panel.set(ylabel="accuracy, %", ylim=(0, 100))
        panel.grid(alpha=0.3)
    left.legend(loc="center left", fontsize="small", bbox_to_anchor=(0, 0.6))
    return drawn


def draw(panel: Axes, scores: list[dict[str, Any]], at: list[float]) -> None:
    """Accuracies with their 95 % intervals."""
    values = np.array([[100 * s[end] for s in scores] for end in ("low", "accuracy", "high")])
    errors = np.abs(values[[0, 2]] - values[1])
    panel.errorbar(at, values[1], errors, fmt="o", capsize=3, label="recipe modern")


def risk(seeds: list[dict[str, list[float]]]) -> Figure:
    """Share of wrong answers if only the most certain ones are given; bands from seed to seed."""
    drawn = Figure(figsize=(5, 3.6), layout="constrained")
    panel = drawn.subplots()
    for color, title in zip(("C1", "C0"), seeds[0], strict=True):
        risks = 100 * np.array([seed[title] for seed in seeds])
        coverage = np.arange(1, risks.shape[1] + 1)
        panel.plot(coverage, risks.mean(0), label=f"all signals, {title}", color=color)
        panel.fill_between(coverage, risks.min(0), risks.max(0), alpha=0.2, color=color)
    panel.set(xlabel="answers given, %", ylabel="of them wrong, %", xlim=(0, 100), ylim=(0, None))
    panel.grid(alpha=0.3)
    panel.legend(loc="upper left")
    return drawn


def read(name: str) -> Any:
    return json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8"))


def main() -> None:
    """Write course-schedules.png, birthplaces.png and birthplaces-risk.png."""
    schedules().savefig(FIGURES / "course-schedules.png", dpi=150)
    seeds, arms = (read(f"birthplaces-{name}")["scores"] for name in ("modern", "arms"))
    reached(seeds, arms, read("birthplaces-tried")).savefig(FIGURES / "birthplaces.png", dpi=150)
    risk(read("birthplaces-risk")).savefig(FIGURES / "birthplaces-risk.png", dpi=110)


if __name__ == "__main__":
    main()
