"""Train the small model whose weights are in the book. `make live-model`.

A decoder of characters, on the sentences of a fictional world and of this project's own courses
and studies. It is a run with float16 weights, in src/regard/book/live_model.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

import regard
from regard.courses import all_parts
from regard.files import pack_tensors, read_tensors, write_file
from regard.studies.registry import all_studies
from regard.tasks.world import WorldConfig, make_world

FOLDER = Path(__file__).parent.parent / "src/regard/book/live_model"
WORLD = WorldConfig(people=80, absent=0, places=20, biographies=12)
SETTINGS = (
    "tokenizer.unknown=unk",
    "model.n_layers=3",
    "model.d_model=80",
    "model.activation=gelu-tanh",
    "model.tie_head=true",
    "model.context_length=128",
    "training.steps=1500",
    "training.batch=32",
    "training.lr=3e-3",
    "training.checkpoint_every=500",
    "data.validation=0.02",
)
KEPT = ("config.toml", "origin.json", "tokenizer.json", "tokenizer_config.json")
_SENTENCE = re.compile(r"[A-Z][A-Za-z ,;:'’()-]{30,}[.?]")
"""Sentences of words, without formulas and numbers."""


def main() -> None:
    """Train the model, and write its run with weights of half precision."""
    torch.set_num_threads(1)  # sums are made in one order
    with tempfile.TemporaryDirectory() as folder:
        texts = [*make_world(WORLD).documents, *paragraphs()]
        out = Path(folder) / "run"
        regard.train("text", texts, out=out, settings=SETTINGS, precision="float32")
        FOLDER.mkdir(exist_ok=True)
        for name in KEPT:
            shutil.copy(out / name, FOLDER / name)
        write_file(FOLDER / "model.safetensors", in_half(out / "model.safetensors"))


def paragraphs() -> Iterator[str]:
    """Yield the sentences without formulas of each text of the courses and studies."""
    texts = [text for part in all_parts() for text in (part.problem, part.answer)]
    texts += [option.why for part in all_parts() for option in part.options]
    texts += [f"{study.question} {study.claim} {study.explanation}" for study in all_studies()]
    for text in texts:
        if found := _SENTENCE.findall(text):
            yield " ".join(found)


def in_half(path: Path) -> bytes:
    """Return a file of tensors with the same metadata, in float16."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    return pack_tensors({n: t.half() for n, t in read_tensors(path).items()}, metadata)


if __name__ == "__main__":
    main()
