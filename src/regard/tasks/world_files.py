"""The fictional world on disk, in the format of the real birthplaces data.

wiki.txt                one biography per line
birth_places_train.tsv  questions about the people in QA training, in all wordings
birth_dev.tsv           one question about each person in the text only
birth_test_inputs.tsv   one question about each absent person; no answers
people.jsonl            ground truth: facts of every person, and statements in the text
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from regard.errors import UserError
from regard.files import write_folder
from regard.tasks.examples import Example
from regard.tasks.world import QUESTIONS, World


def save_world(world: World, out: Path) -> None:
    """Write the files.

    Raises:
        UserError: the folder isn't empty.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists and isn't empty; choose another --out")
    if out.exists():
        out.rmdir()
    write_folder(
        out,
        {
            "wiki.txt": "".join(text + "\n" for text in world.documents).encode(),
            "birth_places_train.tsv": _tsv(world.questions("qa_train", QUESTIONS)),
            "birth_dev.tsv": _tsv(world.questions("text_only")),
            "birth_test_inputs.tsv": _tsv(world.questions("absent")),
            "people.jsonl": b"".join(msgspec.json.encode(p) + b"\n" for p in world.people),
        },
    )


def _tsv(questions: Sequence[Example]) -> bytes:
    lines = (
        question.text if question.answer is None else f"{question.text}\t{question.answer}"
        for question in questions
    )
    return "".join(line + "\n" for line in lines).encode()
