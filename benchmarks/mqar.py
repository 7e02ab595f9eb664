"""What each mechanism can look up: multi-query associative recall against the number of pairs.

Two layers of width 64 with a short convolution, 800 steps; as many pairs of key and value as asked
for in 64 tokens; three seeds. A state of constant size holds only so many pairs, and a window knows
none that it has left; exact attention finds all.

    python benchmarks/mqar.py [--only MECHANISM] [--seeds 3] [--out docs/figures]

Some 40 minutes on two cores, in two calls side by side with one thread each (OMP_NUM_THREADS=1;
--out tells them apart). Prints a table and writes mqar.json.
"""

import statistics

from trained import options, store, stored, trained

from regard.environment import ExecutionEnvironment
from regard.evaluation.tasks import score_task

PAIRS = (4, 8, 16)
STEPS = ["training.steps=800", "training.lr=3e-3"]
MECHANISMS: dict[str, list[str]] = {
    "softmax": [],
    "elu": ["model.attention.kind=elu"],
    "favor-positive": ["model.attention.kind=favor-positive", "model.attention.features=64"],
    "sliding-window": ["model.attention.kind=sliding-window", "model.attention.size=16"],
}
"""What is trained, and its settings."""


def accuracy(
    mechanism: str, pairs: int, seed: int, environment: ExecutionEnvironment
) -> dict[str, float]:
    """Of one training: the share of queries that are answered with the right value."""
    settings = [f"task.pairs={pairs}", f"seed={seed}", *STEPS, *MECHANISMS[mechanism]]
    with trained("mqar", settings, environment) as (run, seconds):
        found = score_task(run, environment).scores
        return {"accuracy": found["accuracy"].value, "seconds": seconds}


def row(mechanism: str, found: dict[str, list[dict[str, float]]]) -> str:
    """A line of the table, in Markdown: median, lowest and highest of the seeds."""
    cells = []
    for pairs in PAIRS:
        values = [one["accuracy"] for one in found[str(pairs)]]
        cells.append(f"{statistics.median(values):.3f} ({min(values):.2f}–{max(values):.2f})")
    return f"| {mechanism} | {' | '.join(cells)} |"


def main() -> None:
    """Train all, or some."""
    parser = options(__doc__, MECHANISMS)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    place = given.out / "mqar.json"
    found = stored(place)
    environment = ExecutionEnvironment.choose("auto", "float32")
    print("| | " + " | ".join(f"{pairs} pairs" for pairs in PAIRS) + " |")
    print("|---" * (len(PAIRS) + 1) + "|")
    for mechanism in given.only or MECHANISMS:
        found[mechanism] = {
            str(pairs): [
                accuracy(mechanism, pairs, seed, environment) for seed in range(given.seeds)
            ]
            for pairs in PAIRS
        }
        print(row(mechanism, found[mechanism]), flush=True)
        store(place, found, MECHANISMS)


if __name__ == "__main__":
    main()
