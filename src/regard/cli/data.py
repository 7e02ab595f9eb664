"""regard data"""

from collections.abc import Sequence
from pathlib import Path

import click


@click.command()
@click.argument("kind", type=click.Choice(["pairs", "corruption", "masking"]))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--number", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--block", type=click.IntRange(min=8), default=128, show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
def data(kind: str, file: Path, number: int, block: int, seed: int) -> None:
    """Print examples of FILE: x, what a model reads, and y below, what it should predict there.

    pairs: questions and answers; corruption: texts with a span cut out; masking: texts with single
    characters masked, for models that see both sides. Characters are tokens. · in y marks a
    position that carries no loss.
    """
    import numpy as np

    from regard.tasks.questions import encode_pairs, read_answered
    from regard.text.corpus import read_corpus
    from regard.text.objectives import (
        IGNORE,
        Example,
        masked_tokens,
        question_answer,
        span_corruption,
    )
    from regard.text.tokenizer import Characters, encode_documents

    def show(x: Sequence[int], labels: Sequence[int]) -> None:
        y = ["·" if label == IGNORE else tokenizer.decode([label]) for label in labels]
        click.echo(f"x: {tokenizer.decode(x)}\ny: {''.join(y)}\n")

    def show_next(example: Example) -> None:
        labels = [
            token if target else IGNORE
            for token, target in zip(example.ids, example.targets, strict=True)
        ]
        show(example.ids[:-1], labels[1:])

    if kind == "pairs":
        questions = read_answered(file)[:number]
        tokenizer = Characters.train([text for q in questions for text in (q.text, q.answer or "")])
        for pair in encode_pairs(tokenizer, questions, block):
            show_next(question_answer(*pair))
        return
    documents = read_corpus([file])[:number]
    tokenizer = Characters.train([document.text for document in documents])
    draw = np.random.default_rng(seed)
    for ids in encode_documents(tokenizer, documents):
        if kind == "corruption":
            show_next(span_corruption(ids, block, draw))
        else:
            show(*masked_tokens(ids[:block], tokenizer.size, draw))
