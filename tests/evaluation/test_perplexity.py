"""Perplexity of texts, and of what packed corpora hold out."""

import math
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

import regard
from logits import VOCABULARY, LargestLogits, with_large_vocabulary
from regard.data import batch
from regard.errors import NonFiniteError, UserError
from regard.evaluation import perplexity
from regard.evaluation.perplexity import TextScore, text_perplexity
from regard.models import builders
from regard.models.builders import LOGIT_BYTES
from regard.runs.run import Run
from regard.text.corpus import Document
from tiny import BIOGRAPHIES

SETTINGS = [
    "model.n_layers=1",
    "model.n_heads=2",
    "model.d_model=8",
    "model.context_length=32",
    "training.steps=2",
    "training.batch=2",
    "data.packing=false",
]


def pack(folder: Path, name: str, n: int, **options: object) -> Path:
    text = folder / f"{name}.txt"
    text.write_text("".join(f"{name} {i} {'xyz ' * (i % 20)}\n" for i in range(n)), "utf-8")
    known = folder / "packed" / "web"
    tokenizer = known if known.exists() else "characters"
    out = folder / "packed" / name
    regard.pack(text, out=out, **({"tokenizer": tokenizer, "jobs": 1} | options))  # type: ignore[arg-type]
    return out


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    pack(tmp_path, "web", 200, validation=0.1)
    pack(tmp_path, "ebw", 100, validation=0.1)
    return tmp_path / "packed"


@pytest.fixture
def run(corpora: Path) -> Run:
    return regard.pretrain(
        corpora, out=corpora.parent / "run", settings=SETTINGS, device="cpu", precision="float32"
    )


def score(run: Run, data: Path | None = None) -> TextScore:
    found = regard.evaluate(run, data)
    assert isinstance(found, TextScore)
    return found


def test_the_score_is_the_last_validation_loss(run: Run, corpora: Path) -> None:
    lines = (run.path / "metrics.jsonl").read_text("utf-8").splitlines()
    logged = [line for line in lines if "validation_loss" in line][-1]
    loss = float(logged.partition('"validation_loss": ')[2].split(",")[0].rstrip("}"))
    found = score(run)
    # Rows are batched otherwise: float32 sums of some thousand losses in another order.
    assert math.isclose(math.log(found.perplexity.value), loss, rel_tol=1e-5)
    assert found.figures() == score(regard.load(run.path, device="cpu")).figures()
    # The held-out documents of both are those of the folder.
    assert score(run, corpora).tokens == found.tokens
    apart = [score(run, corpora / name).tokens for name in ("web", "ebw")]
    assert sum(apart) == found.tokens


def test_a_file_of_any_kind_is_scored(run: Run, tmp_path: Path) -> None:
    (tmp_path / "new.jsonl").write_text('{"text": "web 1 xyz"}\n', "utf-8")
    (tmp_path / "new.txt").write_text("web 1 xyz\n", "utf-8")
    assert (
        score(run, tmp_path / "new.jsonl").figures() == score(run, tmp_path / "new.txt").figures()
    )


def test_missing_tokens_of_a_text_are_named(tmp_path: Path) -> None:
    """It was said that the run has no held-out text."""
    (tmp_path / "text.txt").write_text("a text to train on, and to hold out\n" * 20, "utf-8")
    train = partial(
        regard.train, "text", tmp_path / "text.txt", out=tmp_path / "run", settings=SETTINGS[:-1]
    )
    run = train()
    shutil.rmtree(tmp_path / "run/tokens")
    with pytest.raises(UserError, match="run/tokens: is missing; restore it"):
        regard.evaluate(run)
    with pytest.raises(UserError, match="run/tokens: is missing; restore it, or choose another"):
        train(resume=True)


def test_damaged_weights_are_not_scored(run: Run, tmp_path: Path) -> None:
    """The perplexity was NaN."""
    with torch.no_grad():
        next(run.model.parameters()).view(-1)[0] = float("nan")
    (tmp_path / "text.txt").write_text("Ada Finch\n", "utf-8")
    with pytest.raises(NonFiniteError, match="is NaN or infinite: the weights are damaged"):
        regard.evaluate(run, tmp_path / "text.txt")


def test_corpora_that_are_gone_or_do_not_fit_are_refused(run: Run, corpora: Path) -> None:
    other = pack(corpora.parent, "other", 50, tokenizer="characters")
    with pytest.raises(UserError, match=r"other: was packed with another tokenizer than that of"):
        score(run, other)
    with pytest.raises(UserError, match=r"bwe: holds out no document to score"):
        score(run, pack(corpora.parent, "bwe", 50, validation=0))
    shutil.rmtree(corpora / "ebw")
    with pytest.raises(UserError, match=r"ebw: is no packed corpus any more"):
        score(run)
    pack(corpora.parent, "ebw", 100, validation=0.5)
    with pytest.raises(UserError, match=r"ebw: has changed since .*run was trained on it"):
        score(run)


def test_the_logits_of_a_large_vocabulary_stay_within_the_budget(trained: Path) -> None:
    run = with_large_vocabulary(Run.load(trained))
    documents = [Document(text * 2, "") for text in BIOGRAPHIES * 8]
    with LargestLogits() as made:
        found = text_perplexity(run, documents, run.environment())
    assert found.tokens * 4 * VOCABULARY > 2 * LOGIT_BYTES
    assert LOGIT_BYTES / 2 < made.bytes <= LOGIT_BYTES


@pytest.mark.parametrize("at_once", [1, 7])
def test_the_score_does_not_depend_on_the_budget(
    trained: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, documents = Run.load(trained), [Document(text, "") for text in BIOGRAPHIES]
    expected = text_perplexity(run, documents, run.environment())
    monkeypatch.setattr(builders, "LOGIT_BYTES", at_once * 4 * run.tokenizer.size)
    monkeypatch.setattr(batch, "EVALUATED_TOKENS", at_once)
    found = text_perplexity(run, documents, run.environment())
    # float32, other shapes
    assert found.figures() == pytest.approx(expected.figures(), rel=1e-5)


def test_a_loss_beyond_the_largest_perplexity_is_said() -> None:
    with pytest.raises(UserError, match="720 nats a token"):
        perplexity._score([7.2e4], [100], 400)


def test_ends_of_documents_are_no_characters(run: Run) -> None:
    found = score(run)
    bits = math.log2(found.perplexity.value) * found.tokens
    assert found.bits_per_character == pytest.approx(bits / (found.tokens - 30), rel=1e-5)


def test_a_first_token_that_is_not_predicted_has_no_characters(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for number, text in enumerate(BIOGRAPHIES):
        (tmp_path / "texts" / f"{number}.txt").write_text(text, "utf-8")
    settings = [*SETTINGS[:-1], "tokenizer.kind=characters", "data.documents=files"]
    run = regard.pretrain(tmp_path / "texts", out=tmp_path / "run", settings=settings, device="cpu")
    found = score(run, tmp_path / "texts")
    assert found.tokens == len("".join(BIOGRAPHIES)) - len(BIOGRAPHIES)
    bits = math.log2(found.perplexity.value)
    assert found.bits_per_character == pytest.approx(bits, rel=1e-5)


def test_rows_without_a_target_leave_the_interval_finite() -> None:
    found = perplexity._score([3.0, 0.0, 4.0], [3, 0, 2], 5).perplexity
    assert math.isfinite(found.low)
    assert math.isfinite(found.high)
