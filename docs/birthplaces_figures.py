"""Draw the figures of docs/birthplaces.md, into docs/figures: the course's two schedules."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from regard.runs.recipe import MinGPTConfig
from regard.runs.recipes import RECIPES
from regard.training.optimizers import rate_factor

FIGURES = Path(__file__).parent / "figures"
TEXTS, ROW, EPOCHS = 2938, 127, 650


def main() -> None:
    """Write course-schedules.png."""
    drawn = Figure(figsize=(8, 3.2), layout="constrained")
    panel = drawn.subplots()
    epochs = np.arange(EPOCHS + 1)
    for over, label in ((200, "2021 to 2023: over 200 epochs"), (650, "later: over 650")):
        schedule = MinGPTConfig(positions=over * TEXTS * 128)
        factors = [rate_factor(0, 1, int(e) * TEXTS * ROW, schedule) for e in epochs]
        panel.plot(epochs, RECIPES["course"].pretraining.lr * np.array(factors), label=label)
    panel.set(xlabel="epoch of pretraining", ylabel="learning rate", ylim=(0, None))
    panel.grid(alpha=0.3)
    panel.legend()
    drawn.savefig(FIGURES / "course-schedules.png", dpi=150)


if __name__ == "__main__":
    main()
