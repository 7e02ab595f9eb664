"""regard data"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from regard.text.objectives import Example
    from regard.text.tokenizer import Tokenizer


@click.command()
@click.argument("kind", type=click.Choice(["pairs", "corruption"]))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--number", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--block", type=click.IntRange(min=8), default=128, show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
def data(kind: str, file: Path, number: int, block: int, seed: int) -> None:
    """Print examples of FILE as a model sees them: x, and y, what it should predict, below.

    pairs: questions and answers; corruption: texts with a span cut out. Characters are tokens.
    · in y marks a position that carries no loss.
    """
    import numpy as np

    from regard.tasks.questions import encode_pairs, read_answered
    from regard.text.corpus import read_corpus
    from regard.text.objectives import question_answer, span_corruption
    from regard.text.tokenizer import Characters, encode_documents

    if kind == "pairs":
        questions = read_answered(file)[:number]
        tokenizer = Characters.train([text for q in questions for text in (q.text, q.answer or "")])
        examples = [question_answer(*p) for p in encode_pairs(tokenizer, questions, block)]
    else:
        documents = read_corpus([file])[:number]
        tokenizer = Characters.train([document.text for document in documents])
        draw = np.random.default_rng(seed)
        ids = encode_documents(tokenizer, documents)
        examples = [span_corruption(document, block, draw) for document in ids]
    for example in examples:
        _print(example, tokenizer)


def _print(example: "Example", tokenizer: "Tokenizer") -> None:
    x = tokenizer.decode(example.ids[:-1])
    y = tokenizer.decode(example.ids[1:])
    shown = zip(y, example.targets[1:], strict=True)
    click.echo(f"x: {x}\ny: {''.join(c if target else '·' for c, target in shown)}\n")
