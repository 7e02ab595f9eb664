"""Share of attention on the first token, beside the loss, of four kinds of softmax attention.

Decoders as that of `regard demo` read the biographies of a fictional world, in rows that begin with
a separator. Loss and attention are those on 100 biographies that are held out:

    python benchmarks/sinks.py [--seeds 3] [--steps 1600] [--out docs/figures]

writes sinks.json and prints the table of `docs/attention.md`.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import torch

from regard.environment import ExecutionEnvironment
from regard.evaluation.perplexity import text_perplexity
from regard.explorer.head_scores import head_scores, sink_share
from regard.explorer.look import adapter_of
from regard.runs.run import Run
from regard.tasks.world import WorldConfig, make_world
from regard.text.corpus import Document
from regard.training.loop import ExecutionOptions
from regard.training.plan import plan_training
from regard.training.sources.documents import DocumentSource

ENVIRONMENT = ExecutionEnvironment(torch.device("cpu"), torch.float32)
KINDS: dict[str, tuple[str, ...]] = {
    "softmax": (),
    "softmax-one": (),
    "softmax-one, learned": ("model.attention.learned=true",),
    "gated-softmax": (),
}
SETTINGS = ("objective.next_token=1", "objective.questions=0")
TEXTS = 100
"""Biographies that are held out."""
Found: TypeAlias = dict[str, float]


def biographies(seed: int) -> list[Document]:
    """Return the text of a world."""
    world = make_world(WorldConfig(seed=seed))
    return [Document(text, f"biography {i}") for i, text in enumerate(world.documents, 1)]


def measure(kind: str, seed: int, steps: int, folder: Path) -> Found:
    """Train a decoder; return its loss, and its attention to the first token."""
    name, *_ = kind.split(",")
    settings = [*SETTINGS, f"model.attention.kind={name}", *KINDS[kind]]
    settings += [f"seed={seed}", f"training.steps={steps}"]
    corpus = biographies(seed)
    source = DocumentSource(corpus[TEXTS:], index=False)
    plan = plan_training(source, "demo", folder / f"{kind}-{seed}", settings=settings)
    plan.execute(ExecutionOptions(environment=ENVIRONMENT, quiet=True))
    return scores(plan.run, corpus[:TEXTS])


def scores(run: Run, texts: Sequence[Document]) -> Found:
    """Return the loss per token, the mean attention to the first token, and the share of sinks."""
    adapter = adapter_of(run)
    heads = head_scores([adapter.attention_maps(text.text)[0] for text in texts])
    return {
        "loss": math.log(text_perplexity(run, texts, ENVIRONMENT).perplexity.value),
        "first token": fmean(head.scores["first"] for head in heads),
        "largest": max(head.scores["first"] for head in heads),
        "sinks": sink_share(heads),
    }


def row(kind: str, found: Sequence[Mapping[str, float]]) -> str:
    """Return a line of the table, in Markdown: means, and the range over seeds."""
    cells = []
    for name, digits in (("loss", 3), ("first token", 2), ("largest", 2), ("sinks", 2)):
        values = [one[name] for one in found]
        low, high = min(values), max(values)
        cells.append(f"{fmean(values):.{digits}f} ({low:.{digits}f}–{high:.{digits}f})")
    return f"| `{kind}` | {' | '.join(cells)} |"


def main() -> None:
    """Measure all kinds, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--only", action="append", choices=KINDS)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    arguments = parser.parse_args()
    print("| kind | loss | first token, mean of heads | largest of a head | sinks |")
    print("|---|---|---|---|---|")
    found: dict[str, list[Found]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in arguments.only or KINDS:
            found[kind] = [
                measure(kind, seed, arguments.steps, Path(folder))
                for seed in range(arguments.seeds)
            ]
            print(row(kind, found[kind]), flush=True)
    document = {
        "setting": {"steps": arguments.steps, "settings": SETTINGS, "texts": TEXTS},
        "machine": ENVIRONMENT.describe(),
        "kinds": found,
    }
    text = json.dumps(document, indent=1)
    (arguments.out / "sinks.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
