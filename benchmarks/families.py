"""Which family for which task: encoder, decoder, encoder–decoder and RNN, each where it applies.

    python benchmarks/families.py [--only TASK] [--out docs/figures]

Some 20 minutes on two cores. Prints a table a task and writes families.json.
"""

from dataclasses import asdict
from typing import Any

from trained import options, store, stored, trained

from regard.environment import ExecutionEnvironment
from regard.evaluation.tasks import score_task
from regard.metrics import Interval

_SIZE = ["model.n_layers=2", "model.d_model=128", "model.dropout=0"]
_STACK = [*_SIZE, "model.n_heads=4", "model.positions.kind=rotary", "model.context_length=192"]
DECODER = ["model.kind=decoder", *_STACK]
RNN = ["model.kind=rnn", *_SIZE, "model.bidirectional=true", "model.context_length=128"]
RNN_PAIR = ["model.kind=rnn-encoder-decoder", *_SIZE, "model.bidirectional=true"]
RNN_PAIR += ["model.attention.kind=softmax", "model.context_length=128"]
PAIR = ["model.kind=encoder-decoder", "head.kind=lm"] + [
    f"model.{side}.{setting}"
    for side in ("encoder", "decoder")
    for setting in ("context_length=128", "n_layers=2", "n_heads=4", "d_model=128", "dropout=0")
]

FAMILIES: dict[str, dict[str, list[str]]] = {
    "summaries": {"encoder–decoder": [], "decoder": DECODER},  # RNNs: beyond ten minutes
    "translation": {"encoder–decoder": [], "decoder": DECODER, "RNNs with attention": RNN_PAIR},
    "classification": {
        "encoder": [],
        "decoder, its last state": [*DECODER, "head.kind=classification"],
        "decoder, the label as a word": [*DECODER, "head.kind=lm"],
        "encoder–decoder, the label as a word": PAIR,
        "RNN, both ways": RNN,
    },
    "retrieval": {"encoder": [], "decoder": DECODER, "RNN, both ways": RNN},
}
"""For each task: what is trained, and its settings beside the task's own recipe."""


def measured(task: str, settings: list[str], environment: ExecutionEnvironment) -> dict[str, Any]:
    """Train one and score it."""
    with trained(task, settings, environment) as (run, seconds):
        found = score_task(run, environment)
        scores = {name: asdict(interval) for name, interval in found.scores.items()}
        baselines = {
            name: {score: asdict(interval) for score, interval in scored.items()}
            for name, scored in found.baselines.items()
        }
        return {
            "settings": settings,
            "parameters": run.n_parameters,
            "seconds": seconds,
            "cut": found.cut,
            "scores": scores,
            "baselines": baselines,
            "machine": environment.describe(),
        }


def table(found: dict[str, Any]) -> str:
    """The families of a task and its baselines, in Markdown."""
    first = next(iter(found.values()))
    names = list(first["scores"])
    lines = ["| | " + " | ".join(names) + " | training |", "|---" * (len(names) + 2) + "|"]
    rows = {name: (one["scores"], f"{one['seconds']:.0f} s") for name, one in found.items()}
    rows |= {name: (scores, "") for name, scores in first["baselines"].items()}
    for name, (scores, seconds) in rows.items():
        shown = " | ".join(str(Interval(**scores[score])) for score in names)
        lines.append(f"| {name} | {shown} | {seconds} |")
    return "\n".join(lines)


def main() -> None:
    """Train all, or those of some tasks."""
    given = options(__doc__, FAMILIES).parse_args()
    place = given.out / "families.json"
    found = stored(place)
    environment = ExecutionEnvironment.choose("auto", "auto")
    for task in given.only or FAMILIES:
        of_task = found.setdefault(task, {})
        for name, settings in FAMILIES[task].items():
            of_task[name] = measured(task, settings, environment)
            store(place, found, FAMILIES)
        print(f"\n{task}\n\n{table(of_task)}", flush=True)


if __name__ == "__main__":
    main()
