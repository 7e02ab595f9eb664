"""The page: the models, and each exercise with its picture."""

from collections.abc import Sequence
from pathlib import Path

from explorer_pages.bert import bert_exercises
from explorer_pages.exercise import Exercise, section, table
from explorer_pages.gpt import gpt_exercises
from explorer_pages.models import TEXTS, Trained
from explorer_pages.untrained import before_training
from regard.files import write_file
from regard.runs.run import Run
from regard.studies.finding import Measurement

MEASURED = 200
"""Texts of each kind on which heads are chosen and measured."""

_HEAD = """# Exercises: what attention looks at

A course lets its students look at the attention of GPT and BERT, and say what they see. Here are
the same exercises on two models that are trained in minutes, on {texts} texts of a small English in
which it is known what each word depends on (`docs/explorer_pages/sentences.py`). Each section says
what is seen, and measures it: a ✗ would say that it isn't so. The command above a picture writes
the page on which all heads can be opened, hovered over and compared.

`make exercises` trains both models, measures, and writes this page.

{models}

Tokens are words and full stops; ⁇ begins each text. Heads are called by layer and number, from 0:
1.2 is the third head of the second layer. On new texts, the best head is chosen by one half
of them and measured on the other. “Before training” is the same model with its first weights.

Trained from other seeds, such models look otherwise. Of seeds 0 to 3 (this page's is 0), two give a
head that looks from *cake* to *party* (0.92 and 0.69 of its weight) and two don't (0.12 and 0.17),
though all four tell what is bought (with 0.77 or more). A head that looks from the pronoun to the
person is in all of them, with 0.44 to 0.84; the one that looks most at the word before gives it
0.34 to 0.54. What a model knows, and where its heads look, are two questions.
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
    others: Sequence[Exercise] = (),
    n: int = MEASURED,
) -> list[Measurement]:
    """Write README.md, and of each exercise its picture and its interactive page.

    Returns:
        The numbers that aren't as the page says.
    """
    out.mkdir(parents=True, exist_ok=True)
    found = [*exercises(decoder.run, encoder.run, n), *others]
    for one in found:
        write_file(out / f"{one.name}.png", one.picture.png)
        one.looked.view.save(out / f"{one.name}.html")
    text = "\n\n".join([_head(decoder, encoder).rstrip(), *map(section, found)])
    write_file(out / "README.md", f"{text}\n".encode())
    return [number for one in found for number in one.numbers if not number.holds]


def _head(decoder: Trained, encoder: Trained) -> str:
    columns = ["model", "sizes", "parameters", "steps", "seconds", "loss", "before"]
    rows = [
        (
            *(one.run.path.name, one.run.recipe.model.summary, f"{one.run.n_parameters:,}"),
            *(one.steps, round(one.seconds), one.loss, one.loss_before),
        )
        for one in (decoder, encoder)
    ]
    return _HEAD.format(texts=TEXTS, models=table(columns, rows))
