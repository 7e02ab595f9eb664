"""Where a recalled birthplace flows through a model, and what its heads carry.

    python benchmarks/facts.py [--seeds 3] [--people 60] [--out DIR]

Trains decoders of two layers (softmax, gated DeltaNet, one layer of each) on fictional worlds, as
`regard demo` does its first model, but without clozes; trained runs in DIR are used again. Pairs of
questions about people in the text only, both answered rightly, are traced: the value at one site
and token is that of the question about one person, the rest of the question about the other. Then
each head is set to zero. Prints two tables, a row for each seed.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

import regard
from regard import edits
from regard.evaluation.answers import Answer, answer
from regard.metrics import auroc
from regard.runs.recipes import RECIPES
from regard.runs.run import Run, load
from regard.tasks.examples import Example
from regard.tasks.world import World, WorldConfig, make_world
from regard.uncertainty.signals import quick_signals

PATTERNS = ("softmax", "gated-deltanet", "gated-deltanet+softmax")
SURNAME, LAST = 4, 7
"""Tokens of "<sep> Where was Stefan Radnor born ? <sep>"."""


class Answered(NamedTuple):
    """Answers about people in the text only and absent ones, with or without an edit."""

    known: Sequence[Answer]
    absent: Sequence[Answer]

    @property
    def accuracy(self) -> float:
        """The share of right answers about people in the text."""
        return fmean(one.correct for one in self.known)

    @property
    def auroc(self) -> float:
        """AUROC of confidence: recalled or made up."""
        return auroc(*([one.confidence for one in group] for group in self))

    def row(self) -> str:
        """Return accuracy, mean confidence of both groups, and AUROC, as cells."""
        sure = [fmean(one.confidence for one in group) for group in self]
        return f"{self.accuracy:.2f} | {sure[0]:.2f} | {sure[1]:.2f} | {self.auroc:.2f}"


WITHOUT_CLOZES = replace(RECIPES["demo"], objective=RECIPES["world"].objective)
"""Places are learned from whole sentences."""


def trained(pattern: str, seed: int, world: World, out: Path) -> Run:
    """Return a run on the text of a world, trained unless it is there."""
    folder = out / f"{pattern}-{seed}"
    if folder.exists():
        return load(folder)
    return regard.pretrain(
        world.documents,
        out=folder,
        questions=world.questions("qa_train"),
        recipe=WITHOUT_CLOZES,
        settings=[f"seed={seed}", f"model.pattern={pattern}", "training.steps=1600"],
        index=False,
    )


def answers(run: Run, known: Sequence[Example], absent: Sequence[Example]) -> Answered:
    """Answer questions about people in the text only, and about absent ones."""
    environment, signals = run.environment("float32"), quick_signals()
    return Answered(
        *(answer(run, group, environment, signals=signals) for group in (known, absent))
    )


def flow(run: Run, right: Sequence[Example]) -> str:
    """Return mean effects of sites on the way from the surname to the last token, as cells."""
    clean, corrupt = right[::2], right[1::2]
    pairs = [(a, b) for a, b in zip(clean, corrupt, strict=False) if a.answer != b.answer]
    metric = edits.logit_difference(
        right=[a.answer or "" for a, _ in pairs], wrong=[b.answer or "" for _, b in pairs]
    )
    texts = [a.text for a, _ in pairs], [b.text for _, b in pairs]
    found = regard.trace(run, *texts, metric=metric)
    mean = dict(zip((cell.name for cell in found.cells), found.examples.mean(0), strict=True))

    def effect(site: str, token: int) -> float:
        return next(float(x) for name, x in mean.items() if name.startswith(f"{site} at {token} "))

    sites = [("decoder.1.residual", SURNAME), ("decoder.1.residual", LAST)]
    sites += [(f"decoder.{layer}.attention", LAST) for layer in (0, 1)]
    sites += [(f"decoder.{layer}.feedforward", token) for layer, token in ((0, SURNAME), (1, LAST))]
    return " | ".join([*(f"{effect(*site):.2f}" for site in sites), str(len(pairs))])


def main() -> None:
    """Train, trace and edit, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--people", type=int, default=60, help="questions of each group")
    parser.add_argument("--out", type=Path, default=Path("runs/facts"))
    options = parser.parse_args()
    traced = ["| pattern | seed | 1.residual, surname | 1.residual, last | 0.attention, last "]
    traced[0] += "| 1.attention, last | 0.feedforward, surname | 1.feedforward, last | pairs |"
    edited = [
        "| pattern | seed | head at zero | accuracy | confidence, text only | absent | AUROC |"
    ]
    for pattern in PATTERNS:
        for seed in range(options.seeds):
            world = make_world(WorldConfig(seed=seed))
            run, start = trained(pattern, seed, world, options.out), f"| {pattern} | {seed} |"
            known, absent = (
                world.questions(group)[: options.people] for group in ("text_only", "absent")
            )
            before = answers(run, known, absent)
            right = [one for one, given in zip(known, before.known, strict=True) if given.correct]
            traced.append(f"{start} {flow(run, right)} |")
            edited.append(f"{start} none | {before.row()} |")
            for site in (site for site in regard.sites(run) if site.part == "heads"):
                with regard.edited(run, edits.zero(site.name)):
                    edited.append(f"{start} {site.name} | {answers(run, known, absent).row()} |")
            print(traced[-1], *edited[-5:], sep="\n", flush=True)
    for table in (traced, edited):
        print("", table[0], "|---" * (table[0].count("|") - 1) + "|", *table[1:], sep="\n")


if __name__ == "__main__":
    main()
