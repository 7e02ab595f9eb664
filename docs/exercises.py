"""The courses' exercises on looking at attention, measured: a page with pictures. `make exercises`.

Trains two small models, or takes those that a folder holds, looks at what they read, and writes
README.md, a PNG for each exercise, and the interactive page of each, which is too large to be kept.
With --record, adds the numbers of one more training to the file that the page's spread is from.
"""

import argparse
import sys
from pathlib import Path

import torch
from explorer_pages.another import another_bert
from explorer_pages.exercise import Exercise
from explorer_pages.models import DECODER, ENCODER, plan_decoder, plan_encoder, trained
from explorer_pages.page import MEASURED, exercises, write_pages
from explorer_pages.trainings import add_training, load_trainings, training_of

from regard.config import override
from regard.explorer.look import open_model

TRAININGS = Path(__file__).parent / "exercises" / "trainings.jsonl"


def main() -> None:
    """Write the pages.

    Exits with 1 where something that holds after every recorded training doesn't hold.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "exercises")
    parser.add_argument("--runs", type=Path, default=Path("runs/exercises"))
    parser.add_argument("--seed", type=int, default=0, help="of both models [0]")
    parser.add_argument("--record", action="store_true", help=f"only add to {TRAININGS.name}")
    parser.add_argument(
        "--bert", metavar="RUN|hf:MODEL", help="one more encoder, in a last section"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # sums are made in one order, so that the same models come out again
    seed = [f"seed={chosen.seed}"]
    decoder = trained(plan_decoder(chosen.runs / "decoder", override(DECODER, seed)))
    encoder = trained(plan_encoder(chosen.runs / "encoder", override(ENCODER, seed)))
    if chosen.record:
        found = {e.name: e.numbers for e in exercises(decoder.run, encoder.run, MEASURED)}
        add_training(TRAININGS, training_of(chosen.seed, found))
        return
    others = [another(chosen.bert)] if chosen.bert else []
    failed = write_pages(chosen.out, decoder, encoder, load_trainings(TRAININGS), others)
    for number in failed:
        print(f"{number.name}: {number.measured:.4g}, expected {number.expected}", file=sys.stderr)
    sys.exit(1 if failed else 0)


def another(name: str) -> Exercise:
    """The section about one more encoder."""
    return another_bert(open_model(name, device=torch.device("cpu")), name, 50)


if __name__ == "__main__":
    main()
