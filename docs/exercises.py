"""The courses' exercises on looking at attention, measured: a page with pictures. `make exercises`.

Trains two small models, or takes those that a folder holds, looks at what they read, and writes
README.md, a PNG for each exercise, and the interactive page of each, which is too large to be kept.
"""

import argparse
import sys
from pathlib import Path

import torch
from explorer_pages.another import another_bert
from explorer_pages.exercise import Exercise
from explorer_pages.models import plan_decoder, plan_encoder, trained
from explorer_pages.page import write_pages

from regard.explorer.look import open_model


def main() -> None:
    """Write the pages.

    Exits with 1 where something isn't as the page says.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "exercises")
    parser.add_argument("--runs", type=Path, default=Path("runs/exercises"))
    parser.add_argument(
        "--bert", metavar="RUN|hf:MODEL", help="one more encoder, in a last section"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # sums are made in one order, so that the same models come out again
    decoder = trained(plan_decoder(chosen.runs / "decoder"))
    encoder = trained(plan_encoder(chosen.runs / "encoder"))
    others = [another(chosen.bert)] if chosen.bert else []
    failed = write_pages(chosen.out, decoder, encoder, others)
    for number in failed:
        print(f"{number.name}: {number.measured:.4g}, expected {number.expected}", file=sys.stderr)
    sys.exit(1 if failed else 0)


def another(name: str) -> Exercise:
    """The section about one more encoder."""
    return another_bert(open_model(name, device=torch.device("cpu")), name, 50)


if __name__ == "__main__":
    main()
