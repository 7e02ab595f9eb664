"""regard pack"""

from pathlib import Path

import click

from regard.cli import options
from regard.cli.train import TOKENIZER, print_facts


@click.command()
@click.argument("corpus", nargs=-1, required=True, type=options.PATH)
@options.OUT
@TOKENIZER
@options.DOCUMENTS
@click.option(
    "--validation",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.02,
    help="Share of the documents to hold out.",
)
@click.option("--jobs", type=options.COUNT, help="Processes that tokenize. Default: one per core.")
@options.SEED_0
@options.JSON
def pack(
    corpus: tuple[Path, ...],
    out: Path,
    tokenizer: str | None,
    documents: str,
    field: str,
    validation: float,
    jobs: int | None,
    seed: int,
    json_file: Path | None,
) -> None:
    """Write the files and folders CORPUS as token files, for `regard pretrain` and `train text`.

    CORPUS is text, Markdown, JSONL or Parquet, also compressed (.gz, .bz2, .xz; .zst with the
    package zstandard). Repeating the command resumes an interrupted packing.
    """
    from regard import packing

    header = packing.pack(
        corpus,
        out=out,
        tokenizer=tokenizer,
        documents=documents,
        text=field,
        validation=validation,
        seed=seed,
        jobs=jobs,
    ).header
    sizes = header.sizes
    facts = {
        "files": len(header.spec.files),
        "documents": header.spec.documents,
        "training_documents": sizes.training.documents,
        "training_tokens": sizes.training.tokens,
        "validation_documents": sizes.validation.documents,
        "validation_tokens": sizes.validation.tokens,
        "vocabulary": header.vocabulary,
        "fingerprint": header.fingerprint,
    }
    print_facts(facts)
    options.write_json(json_file, facts)
    click.echo(f"Packed corpus: {out}")
