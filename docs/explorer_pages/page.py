"""The page: the models, and each exercise with its picture."""

from collections.abc import Sequence
from pathlib import Path

from explorer_pages.bert import bert_exercises
from explorer_pages.exercise import Exercise, section, table
from explorer_pages.gpt import gpt_exercises
from explorer_pages.models import TEXTS, Trained
from explorer_pages.trainings import Training, holds_always, other_values
from explorer_pages.untrained import before_training
from regard.files import write_file
from regard.runs.run import Run
from regard.studies.finding import Measurement

MEASURED = 200
"""Texts of each kind on which heads are chosen and measured."""

_HEAD = """# Exercises: attention of trained models

Homework 8 of UC Berkeley's EECS 182 (fall 2022) has its students look at the attention of GPT and
BERT and describe it. Here are the same exercises on two models that train in minutes, on {texts}
texts in a small subset of English in which the dependencies of each word are known
(`docs/explorer_pages/sentences.py`). The command above a picture writes the page on which all heads
can be opened, hovered over and compared.

`make exercises` trains both models, measures, and writes this page.

{models}

Tokens are words and full stops; <sep> begins each text. Heads are numbered by layer and head, from
0: 1.2 is the third head of the second layer. On new texts, the best head is chosen by one half of
them and measured on the other. “Before training” is the same model with its initial weights.

A model trained from another seed, or on a processor that adds in another order, has different
heads. So each number is shown with its range over {trainings} trainings (`make exercise-trainings`:
seeds {seeds}, instruction sets {instructions}). ✓ holds after all of them; ~ only after some, so a
sentence about it describes this page's model; ✗ should hold and doesn't.
"""


def exercises(decoder: Run, encoder: Run, n: int) -> list[Exercise]:
    """All of them, in the order of the page; n texts of each kind are measured."""
    return [
        *gpt_exercises(decoder, n),
        *bert_exercises(encoder, decoder, n),
        before_training(encoder, decoder),
    ]


def write_pages(
    out: Path,
    decoder: Trained,
    encoder: Trained,
    trainings: Sequence[Training] = (),
    others: Sequence[Exercise] = (),
    n: int = MEASURED,
) -> list[Measurement]:
    """Write README.md, and of each exercise its picture and its interactive page.

    Returns:
        The numbers out of their bounds, which held after all other trainings.
    """
    out.mkdir(parents=True, exist_ok=True)
    found = [*exercises(decoder.run, encoder.run, n), *others]
    for one in found:
        write_file(out / f"{one.name}.png", one.picture.png)
        one.looked.view.save(out / f"{one.name}.html")
    sections = [section(one, trainings) for one in found]
    text = "\n\n".join([_head(decoder, encoder, trainings).rstrip(), *sections])
    write_file(out / "README.md", f"{text}\n".encode())
    return [
        number
        for one in found
        for number in one.numbers
        if not number.holds and holds_always(number, other_values(trainings, one.name, number.name))
    ]


def _head(decoder: Trained, encoder: Trained, trainings: Sequence[Training]) -> str:
    columns = ["model", "sizes", "parameters", "steps", "seconds", "loss", "before"]
    rows = [
        (
            *(one.run.path.name, one.run.recipe.model.summary, f"{one.run.n_parameters:,}"),
            *(one.steps, round(one.seconds), one.loss, one.loss_before),
        )
        for one in (decoder, encoder)
    ]
    return _HEAD.format(
        texts=TEXTS,
        models=table(columns, rows),
        trainings=len(trainings),
        seeds=", ".join(sorted({str(one.seed) for one in trainings})),
        instructions=", ".join(sorted({one.instructions for one in trainings})),
    )
