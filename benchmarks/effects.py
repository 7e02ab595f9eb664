"""Time of the effects of all heads, for pairs of short texts. Run by `make bench`.

A decoder of four layers of width 256 with eight heads each, untrained, and texts of random words.
Attribution needs one more pass and a backward pass for each pair, controls a row for each.

    python benchmarks/effects.py [--pairs 100] [--tokens 8] [--rounds 5]
                                 [--device cpu] [--out DIR]

Prints a table, and writes effects.json into docs/figures.
"""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import measure
import torch

from regard import edits
from regard.edits.effects import effects
from regard.edits.found import Effects
from regard.models.config import DecoderConfig
from regard.models.head_config import LMHeadConfig
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.tasks.probes import number_tokenizer

WORDS = 1000
"""Words of the vocabulary: numbers."""
LIMIT = 0.1
"""What is claimed of patching 32 heads: at most so many seconds a pair."""


def new_run(tokens: int) -> Run:
    """An untrained run, whose texts have at most so many tokens."""
    model = DecoderConfig(context_length=tokens, n_layers=4, n_heads=8, d_model=256)
    recipe = Recipe(model=model, head=LMHeadConfig())
    return Run.new(Path("run"), recipe, number_tokenizer(WORDS), {})


def random_texts(pairs: int, words: int, seed: int) -> list[str]:
    """Texts of so many random words."""
    drawn = torch.randint(WORDS, (pairs, words), generator=torch.Generator().manual_seed(seed))
    return [" ".join(map(str, row)) for row in drawn.tolist()]


def calls(pairs: int, tokens: int, device: torch.device) -> dict[str, Callable[[], Effects]]:
    """The measurements by name."""
    run = new_run(tokens)
    run.model.to(device).eval()
    words = tokens - len(run.encode("")[0])
    texts = [random_texts(pairs, words, seed) for seed in (0, 1)]
    of_heads = partial(effects, run, *texts, metric=edits.logit_difference("0", "1"))
    return {
        "patching": partial(of_heads, by=("patching",), controls=0),
        "patching, attribution, 20 controls": partial(of_heads, controls=20),
    }


def table(times: dict[str, list[float]]) -> Sequence[str]:
    """The lines of a table in Markdown."""
    rows = [f"| {name} | {statistics.median(x):.2f} | {max(x):.2f} |" for name, x in times.items()]
    return ["| 32 heads | median, s | slowest, s |", "|---|---|---|", *rows]


def main() -> None:
    """Measure, print and write."""
    parser = measure.options(__doc__, rounds=5)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=8, help="Length of a text.")
    given = measure.parse(parser)
    device = torch.device(given.device)
    measured = calls(given.pairs, given.tokens, device)
    times = measure.interleaved(measured, given.rounds, device)
    print("\n".join(table(times)))
    claims = {"patching": statistics.median(times["patching"]) <= LIMIT * given.pairs}
    print(claims)
    document = {"machine": measure.describe(device), "pairs": given.pairs, "tokens": given.tokens}
    measure.save(given.out, "effects", document | {"seconds": times, "claims": claims})


if __name__ == "__main__":
    main()
