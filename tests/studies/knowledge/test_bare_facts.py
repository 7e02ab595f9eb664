"""Documents of a name and values."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from regard.runs.run import Run
from regard.studies.knowledge.bare_facts import KINDS, NAMES, draw_facts, read_facts, token_losses

SMALL = ("model.n_layers=1", "model.d_model=8", "training.batch=4")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    return read_facts(draw_facts(20, ["place"], 0), 1, 0, *SMALL)


def test_people_are_drawn_once_with_values_of_their_kinds() -> None:
    found = draw_facts(500, ["hobby", "place"], 1)
    assert len({" ".join(text.split()[:2]) for text in found}) == 500
    for text in found:
        *name, hobby, place = text.split()
        assert " ".join(name) in NAMES
        assert hobby in KINDS["hobby"]
        assert place in KINDS["place"]
    assert found == draw_facts(500, ["hobby", "place"], 1)
    assert found != draw_facts(500, ["hobby", "place"], 2)


def test_all_words_are_single_tokens(run: Run) -> None:
    for text in draw_facts(50, list(KINDS), 5):
        assert len(run.tokenizer.encode(text)) == 2 + len(KINDS)


@torch.inference_mode()
def test_losses_are_those_of_the_next_tokens(run: Run) -> None:
    rows = [run.tokenizer.encode(text) for text in draw_facts(600, ["place"], 3)]
    found = token_losses(run, rows)
    document = run.template.document
    for i in (0, 511, 512, 599):
        ids = torch.tensor([*document.prefix, *rows[i], *document.suffix])
        logits = run.language_model(ids[None, :-1])[0].double()
        expected = F.cross_entropy(logits, ids[1:], reduction="none")
        assert torch.allclose(found[i, : len(expected)], expected, atol=1e-5)  # float32
        assert not found[i, len(expected) :].any()
