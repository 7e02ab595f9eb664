"""regard data, regard world and regard tasks"""

from collections.abc import Sequence
from pathlib import Path

import click

from regard.cli import options


@click.command()
@click.argument("kind", type=options.Choice(["pairs", "corruption", "masking"]))
@click.argument("file", type=options.PATH)
@click.option(
    "--num-examples",
    type=options.COUNT,
    default=4,
    help="Number of examples.",
)
@click.option(
    "--context-length",
    type=click.IntRange(min=8),
    default=128,
    help="Longest example, in tokens.",
)
@options.SEED_0
def data(kind: str, file: Path, num_examples: int, context_length: int, seed: int) -> None:
    """Print training examples of FILE: inputs x and, below, targets y.

    pairs: questions and answers; corruption: texts with a span removed; masking: texts with masked
    characters, for bidirectional models. Tokens are characters. · in y marks positions without
    loss.
    """
    import numpy as np

    from regard.data import IGNORE
    from regard.data.causal import CausalExample, corrupt_span, labels_of, question_answer
    from regard.data.masked import mask_tokens
    from regard.runs.recipes import COURSE_TOKENS
    from regard.tasks.examples import encode_pairs, read_answered
    from regard.text.config import CharactersConfig
    from regard.text.corpus import read_corpus
    from regard.text.template import Template, TemplateConfig
    from regard.text.tokenizer import encode_documents, train_tokenizer

    config = CharactersConfig(special_tokens=COURSE_TOKENS)

    def show(x: Sequence[int], labels: Sequence[int]) -> None:
        y = ["·" if label == IGNORE else tokenizer.decode([label]) for label in labels]
        click.echo(f"x: {tokenizer.decode(x)}\ny: {''.join(y)}\n")

    def show_next(example: CausalExample) -> None:
        show(example.ids[:-1], labels_of(example.ids, example.targets)[1:])

    if kind == "pairs":
        questions = read_answered(file)[:num_examples]
        texts = [text for q in questions for text in (*q.asked, q.answer or "")]
        tokenizer = train_tokenizer(config, texts)
        template = Template(TemplateConfig(prompt="{question}"), tokenizer)
        for pair in encode_pairs(template, questions, context_length):
            show_next(question_answer(*pair))
        return
    documents = read_corpus([file])[:num_examples]
    tokenizer = train_tokenizer(config, [document.text for document in documents])
    rng, mask = np.random.default_rng(seed), tokenizer.special.require("mask")
    for ids in encode_documents(tokenizer, documents):
        if kind == "corruption":
            show_next(corrupt_span(ids, context_length, rng, mask=mask))
        else:
            text = ids[:context_length]
            show(*mask_tokens(text, rng, mask=mask, regular_ids=tokenizer.regular_ids))


@click.command()
@options.OUT
@click.argument("settings", nargs=-1)
def world(out: Path, settings: tuple[str, ...]) -> None:
    """Write the fictional world to files in the format of the birthplaces data.

    SETTINGS are people=N, absent=N, places=N, skew=X, correlation=X, biographies=N, augment=BOOL,
    order=permuted, place-first or place-last, seed=N.
    """
    from regard.config import override
    from regard.tasks.world import WorldConfig, make_world, save_world

    made = make_world(override(WorldConfig(), settings))
    save_world(made, out)
    people = ", ".join(f"{len(made.group(g))} {g}" for g in ("qa_train", "text_only", "absent"))
    click.echo(f"{len(made.documents)} biographies; people: {people}")
    click.echo(f"World: {out}")


@click.command()
def tasks() -> None:
    """List the tasks of `regard train TASK`."""
    from regard.runs.recipes import TASKS

    about = {
        "questions": "Questions of a file → answers.",
        "text": "Any text → its continuation.",
    }
    about |= {name: (type(recipe.task).__doc__ or "") for name, recipe in TASKS.items()}
    for name, text in about.items():
        click.echo(f"{name:<18}{text.splitlines()[0]}")
