"""Training on packed corpora: mixtures, packing, and corpora that don't fit."""

from pathlib import Path

import pytest

from plans import plan_named, plan_pretraining
from refusals import refusal
from regard.config import override
from regard.data.packing import Mixture
from regard.errors import UserError
from regard.files import held_alone
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.text.config import CharactersConfig
from regard.text.files import inspect_file
from regard.text.pack import pack_corpus
from regard.text.packed import TextSpec, is_packed
from regard.text.tokenizer import Tokenizer, train_tokenizer
from regard.training.sources.choose import find_packed
from tiny_tasks import SETTINGS

TINY = [
    "model.context_length=32",
    "model.n_layers=1",
    "model.n_heads=2",
    "model.d_model=8",
    *(f"training.{field}" for field in ("steps=3", "batch=2", "checkpoint_every=2", "log_every=1")),
]
KNOWN = train_tokenizer(
    CharactersConfig(unknown="bytes"), ["abcdefghijklmnopqrstuvwxyz 0123456789"]
)


def recipe(*settings: str) -> Recipe:
    return override(RECIPES["default"], [*TINY, *settings])


def make_packed(folder: Path, name: str, n: int, tokenizer: Tokenizer = KNOWN) -> Path:
    text = folder / f"{name}.txt"
    text.write_text("".join(f"{name} {i} {'x' * (i % 20)}\n" for i in range(n)), "utf-8")
    spec = TextSpec(
        files=(inspect_file(text),),
        documents="lines",
        text_field="text",
        tokenizer=CharactersConfig(),
        known=tokenizer.fingerprint,
        validation=0.1,
        seed=0,
    )
    pack_corpus(spec, folder / "packed" / name, lambda *_: None, tokenizer=tokenizer)
    return folder / "packed" / name


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    """A folder of two packed corpora."""
    (tmp_path / "packed").mkdir()
    make_packed(tmp_path, "web", 120)
    make_packed(tmp_path, "code", 80)
    return tmp_path / "packed"


@pytest.mark.parametrize(("command", "packing"), [("pretrain", "true"), ("train", "false")])
def test_a_packed_corpus_is_trained_on(
    corpora: Path, tmp_path: Path, packing: str, command: str
) -> None:
    chosen, out = recipe(f"data.packing={packing}"), tmp_path / "run"
    plan = (
        plan_pretraining(corpora / "web", out, chosen)
        if command == "pretrain"
        else plan_named("text", corpora / "web", out=out, recipe=chosen)
    )
    assert plan.data.facts["training_documents"] + plan.data.facts["validation_documents"] == 120
    batch = plan.sampler.batch(0)
    assert ("document_ids" in batch.inputs) == (packing == "true")
    assert plan.loss_before()["untrained_loss"] > 0
    progress = plan.execute(SETTINGS)
    assert progress.step == 3
    assert progress.best_loss is not None
    assert plan.run.tokenizer.fingerprint == KNOWN.fingerprint


def test_a_corpus_in_the_folder_of_the_run_stays(corpora: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (corpora / "web").rename(out / "tokens")
    plan_pretraining(out / "tokens", out, recipe()).execute(SETTINGS)
    assert is_packed(out / "tokens")


def test_a_link_to_tokens_of_another_text_goes_but_not_where_it_leads(
    corpora: Path, tmp_path: Path
) -> None:
    """And nothing is written there, as it may be read-only."""
    out = tmp_path / "run"
    out.mkdir()
    (out / "tokens").symlink_to(corpora / "code")
    with held_alone(corpora / "code"):
        plan_pretraining(corpora / "web", out, recipe()).execute(SETTINGS)
    assert not (out / "tokens").exists()
    assert is_packed(corpora / "code")


def test_texts_beside_packed_corpora_are_not_left_out_in_silence(
    corpora: Path, tmp_path: Path
) -> None:
    (corpora / "more").mkdir()
    (corpora / "more" / "notes.md").write_text("Read me.", "utf-8")
    with pytest.raises(UserError, match=r"packed corpora and other texts, such as more/notes\.md"):
        plan_pretraining(corpora, tmp_path / "run", recipe())
    plan_pretraining([corpora / "web", corpora / "code"], tmp_path / "run", recipe())


def test_a_folder_of_corpora_is_a_mixture(corpora: Path, tmp_path: Path) -> None:
    plan = plan_pretraining(corpora, tmp_path / "run", recipe(), mix="web=3,code=1")
    (mixed,) = plan.sampler._datasets
    assert isinstance(mixed, Mixture)
    assert plan.data.facts["mixture"] == "web=3, code=1"
    drawn = [mixed.source(index)[0] for index in range(400)]
    assert drawn.count(0) == 300  # in the order of --mix
    without = plan_pretraining([corpora / "web", corpora / "code"], tmp_path / "other", recipe())
    assert without.data.facts["mixture"] == "web, code"
    assert plan.run.origin["fingerprint"] != without.run.origin["fingerprint"]


def test_a_wrong_mixture_is_refused(corpora: Path, tmp_path: Path) -> None:
    for mix, says in (
        ("web=0.7", "has no weight for code"),
        ("web=0.7,cod=0.3", "--mix cod: there is no such corpus; there are: code, web"),
        ("web=0.7,code", "--mix code: expected NAME=WEIGHT"),
        ("web=0.7,code=0", "--mix code=0: expected NAME=WEIGHT"),
        ("web=1,code=nan", "expected NAME=WEIGHT"),
        ("web=0.7,code=1,web=2", "--mix web: is given twice"),
        ("", "expected NAME=WEIGHT"),
    ):
        with refusal(UserError, says, mix):
            plan_pretraining(corpora, tmp_path / "run", recipe(), mix=mix)


def test_corpora_of_other_tokenizers_are_refused(corpora: Path, tmp_path: Path) -> None:
    other = train_tokenizer(CharactersConfig(unknown="bytes"), ["0123456789 aeiou"])
    make_packed(tmp_path, "books", 50, other)
    with pytest.raises(UserError, match=r"was packed with another tokenizer than .*; pack it with"):
        plan_pretraining(corpora, tmp_path / "run", recipe())
    with pytest.raises(UserError, match="was packed with another tokenizer than the one given"):
        plan_pretraining(corpora / "web", tmp_path / "run", recipe(), tokenizer=other)
    assert not (tmp_path / "run").exists()


def test_what_packing_does_not_support_is_refused(corpora: Path, tmp_path: Path) -> None:
    out, packed = tmp_path / "run", corpora / "web"
    for setting, says in (
        ("model.kind=rnn", r"model.kind=rnn has no document masks; set data.packing=false"),
        ("objective.span_corruption=0.5", r"packed corpora are for objective.next_token alone"),
    ):
        with refusal(UserError, says, setting):
            plan_pretraining(corpora, out, override(Recipe(), [setting]))
    for setting in (
        "tokenizer.kind=words",
        "data.documents=files",
        "data.validation=0.5",
        "data.table.text=body",
    ):
        with refusal(UserError, r"web is packed already; leave it out, or pack again", setting):
            plan_pretraining(packed, out, recipe(), [setting])
    with pytest.raises(UserError, match=r"web.txt: is no packed corpus, unlike others"):
        plan_pretraining([packed, tmp_path / "web.txt"], out, recipe())
    assert not out.exists()


def test_a_recurrent_model_trains_on_padded_documents(corpora: Path, tmp_path: Path) -> None:
    settings = ["model.kind=rnn", "data.packing=false", "training.steps=2"]
    plan = plan_pretraining(corpora, tmp_path / "run", override(Recipe(), settings))
    assert plan.loss_before()["untrained_loss"] > 0


def test_a_corpus_by_two_names_is_one(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpora)
    assert len(find_packed([Path("web"), corpora / "web", corpora])) == 2


def test_an_unfinished_corpus_is_not_mixed_in(corpora: Path) -> None:
    (corpora / "code").rename(corpora / ".code.partial")
    assert list(find_packed(corpora)) == [corpora / "web"]
