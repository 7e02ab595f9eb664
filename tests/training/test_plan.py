"""What a stage makes of data and recipe."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from plans import plan_finetuning, plan_pretraining, plan_questions, plan_task, plan_text
from refusals import refusal
from regard.config import override
from regard.data import IGNORE
from regard.data.batch import Batch, PaddedIds
from regard.errors import UserError
from regard.runs.recipes import RECIPES
from regard.tasks.examples import Example
from regard.tasks.split import TextTaskConfig
from regard.text.corpus import Document
from regard.training.plan import EXAMPLE_CHARACTERS, Plan, example_text, plan_training
from regard.training.sources.base import Datasets, hold_out, unread_with
from regard.training.sources.choose import choose_source
from regard.training.sources.documents import DocumentSource
from tiny import MASK, MODEL, PAD, QUESTIONS
from tiny_tasks import task_recipe

TEXTS = ["Ada Finch. Ada Finch was born in Leeds .", "Otto Lange. Lange lives in Rill ."]


def plan(texts: list[str], *settings: str, questions: Sequence[Example] = ()) -> Plan:
    """Pretraining on clozes of a few texts; nothing is trained."""
    tiny = ["tokenizer.kind=words", "model.d_model=16", "training.steps=30", "data.validation=0"]
    recipe = override(
        RECIPES["default"], [*tiny, "objective.next_token=0", "objective.clozes=1", *settings]
    )
    corpus = [Document(text, f"text:{i}") for i, text in enumerate(texts, 1)]
    return plan_pretraining(corpus, Path("nowhere"), recipe, questions=questions)


def rows(made: Plan) -> set[str]:
    """All that is ever read, <sep> standing for the end of a question and of its answer."""
    seen = [row for step in range(made.sampler.steps) for row in made.sampler.batch(step).input_ids]
    decode = made.run.tokenizer.decode
    texts = set()
    for row in seen:
        question = row[1 : row.tolist().index(MASK, 1)].tolist()  # <sep> begins the row, too
        texts.add(decode(question))
    return texts


def test_each_token_of_held_out_documents_is_predicted_once() -> None:
    texts = [" ".join(["word"] * n) for n in range(1, 40)]
    settings = ["tokenizer.kind=words", "model.context_length=8", "data.validation=0.5"]
    made = plan_pretraining(
        texts, Path("nowhere"), override(RECIPES["default"], [*MODEL, *settings])
    )
    labels = torch.cat([batch.labels[batch.labels != IGNORE] for batch in made.validation])
    words = labels[labels == made.run.tokenizer.encode("word")[0]]
    held_out = hold_out(texts, made.run.recipe)[1]
    assert len(words) == sum(len(text.split()) for text in held_out)


def test_a_cloze_shows_now_more_and_now_fewer_words() -> None:
    assert rows(plan(TEXTS)) == {
        "Ada Finch.",
        "Ada Finch. in",
        "Ada Finch. born in",
        "Ada Finch. was born in",
        "Ada Finch. Finch was born in",
        "Otto Lange.",
        "Otto Lange. in",
        "Otto Lange. lives in",
        "Otto Lange. Lange lives in",
    }


def test_the_fewest_words_are_shown_where_there_are_so_many() -> None:
    assert rows(plan(TEXTS, "objective.cloze_words=[4, 4]")) == {
        "Ada Finch. Finch was born in",
        "Otto Lange. Lange lives in",
    }


def test_the_answers_carry_the_loss() -> None:
    batch = plan(TEXTS, "objective.cloze_words=[0, 0]").sampler.batch(0)
    assert batch.n_targets == 2 * 3  # <sep> Leeds <sep>, <sep> Rill <sep>


def test_clozes_of_texts_without_titles_are_refused() -> None:
    with pytest.raises(
        UserError, match=r"objective\.clozes is above 0, but no document, as text:1"
    ):
        plan(["born in Leeds", "nothing at all"])


ASKED = [Example(text="Where was Ada Finch born?", answer="Leeds", where="pairs:1")]


def test_relevant_clozes_are_read_more_often() -> None:
    """The question is about one document; both have a place and a month."""
    texts = ["Ada Finch. born in Leeds on 3 May .", "Otto Lange. born in Leeds on 4 May ."]
    shares = ["objective.questions=0.1", "objective.cloze_relevance=6"]
    made = plan(texts, *shares, questions=ASKED)
    clozes, _ = (one.dataset for one in made.data.training)
    decode = made.run.tokenizer.decode
    answers = [decode([i for i in row[0].ids if i != MASK]).split()[-1] for row in clozes.rows]
    assert answers.count("Leeds") > answers.count("May") >= 2


def test_relevance_needs_questions_about_titles() -> None:
    about_mia = [Example(text="Where was Mia Bell born?", answer="Rome", where="pairs:1")]
    for setting, questions, said in (
        ("objective.questions=0", [], r"cloze_relevance: is estimated from questions"),
        ("objective.cloze_relevance=inf", [], r"cloze_relevance: expected a number <= 100"),
        (
            "objective.questions=0.1",
            about_mia,
            r"no question, as pairs:1, contains the title of a document, such as «Ada Finch»",
        ),
    ):
        with refusal(UserError, said, setting):
            plan(TEXTS, "objective.cloze_relevance=6", setting, questions=questions)


def test_phrases_that_words_can_t_write_alone_are_left_out() -> None:
    made = rows(plan([*TEXTS, "Mia Bell. Bell was born (Rome) in Oslo ."]))
    assert "Mia Bell. in" in made
    assert "Mia Bell. born" not in made


def test_training_on_no_questions_stops() -> None:
    with pytest.raises(UserError, match="there are no questions to train on"):
        plan_finetuning(plan(TEXTS).run, [], Path("nowhere"))


def test_pretraining_reads_folders_records_and_encodings(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.txt").write_bytes("Zoë was born.\nIn Köln.\n\nOtto was not.\n".encode("cp1252"))
    (data / "b.jsonl").write_text('{"body": "Mia\\nlives."}\n', encoding="utf-8")
    recipe = override(RECIPES["default"], [*MODEL, "data.table.text=body"])
    for kind, texts in {
        "lines": ["Zoë was born.", "In Köln.", "Otto was not.", "Mia\nlives."],
        "paragraphs": ["Zoë was born.\nIn Köln.", "Otto was not.", "Mia\nlives."],
        "files": ["Zoë was born.\nIn Köln.\n\nOtto was not.\n", "Mia\nlives."],
    }.items():
        chosen = override(recipe, [f"data.documents={kind}", "tokenizer.newline=true"])
        read, given = (plan_pretraining(x, tmp_path / "run", chosen).run for x in (data, texts))
        assert read.origin["fingerprint"] == given.origin["fingerprint"]
    with pytest.raises(UserError, match=r"data\.documents=auto: is for `regard train text`"):
        plan_pretraining(data, tmp_path / "run", recipe, ["data.documents=auto"])


def test_a_run_keeps_a_text_to_try_it_with(tmp_path: Path) -> None:
    example = plan(TEXTS).run.origin["example"]
    assert example in rows(plan(TEXTS)), "a prompt without its completion"
    made = plan_questions(QUESTIONS, tmp_path, override(RECIPES["questions"], MODEL))
    assert made.run.origin["example"] == QUESTIONS[0].text
    words = [f"word{i}" for i in range(400)]
    recipe = override(RECIPES["text"], [*MODEL, "tokenizer.kind=byte-pairs"])
    shown = plan_text([Document(" ".join(words), "long:1")], tmp_path, recipe).run.origin["example"]
    assert set(shown.split()) <= set(words), "a window, of whole words"
    assert EXAMPLE_CHARACTERS / 2 < len(shown) < EXAMPLE_CHARACTERS


def test_a_row_of_special_tokens_gives_no_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a short text has where all of it is masked."""
    made = plan(TEXTS)
    ids = PaddedIds.of([[MASK]], PAD)
    monkeypatch.setattr(
        type(made.sampler), "batch", lambda *_: Batch({"input_ids": ids}, torch.tensor([[3]]))
    )
    assert example_text(made.run, Datasets(training=()), made.sampler) == ""


def test_the_example_of_a_task_is_one_of_its_texts(tmp_path: Path) -> None:
    for task, family in (
        ("casing", "encoder-decoder"),
        ("translation", "decoder"),
        ("tagging", "encoder, tags"),
        ("entailment", "encoder, classification"),
        ("retrieval", "encoder, embedding"),
    ):
        recipe = task_recipe(task, family)
        shown = plan_task(tmp_path, recipe).run.origin["example"]
        assert shown, task
        assert isinstance(recipe.task, TextTaskConfig)
        texts = [one.text for one in recipe.task.make(recipe.seed).training]
        assert any(text.startswith(shown) for text in texts), task


@pytest.mark.parametrize("documents", [["}"] * 12 + ["a}a}"] * 12, ["}"] * 3])
def test_single_ids_without_affixes_are_no_rows(documents: list[str], tmp_path: Path) -> None:
    settings = ["template.document={document}", "tokenizer.kind=characters", "data.validation=0"]
    settings += ["model.context_length=8", "training.steps=10", "training.batch=2"]
    settings += ["model.n_layers=1", "model.d_model=16", "model.n_heads=2"]
    train = partial(regard.pretrain, documents, out=tmp_path / "run", index=False, device="cpu")
    if len(documents) > 3:
        train(settings=settings)
    else:
        with pytest.raises(UserError, match="document 1: is too short to learn from"):
            train(settings=settings)


def test_a_template_leaves_tokens_to_the_text(tmp_path: Path) -> None:
    settings = [
        "model.context_length=8",
        "tokenizer.kind=characters",
        "template.document=hello w{document}",
    ]
    settings += ["data.validation=0", "training.steps=1"]
    train = partial(regard.pretrain, ["hello world"] * 3, index=False, device="cpu")
    assert train(out=tmp_path / "run", settings=settings).origin["steps"] == 1
    spans = ["objective.next_token=0", "objective.span_corruption=1"]
    with pytest.raises(UserError, match=r"leaves 1 of model.context_length=8 tokens for the text"):
        train(out=tmp_path / "other", settings=[*settings, *spans])


@pytest.mark.parametrize(
    ("name", "data", "setting"),
    [
        ("text", TEXTS, "data.blank_lines=true"),
        ("text", TEXTS, "data.packing=false"),
        ("questions", QUESTIONS, "objective.next_token=0.5"),
        ("casing", None, "data.documents=files"),
        ("parity", None, "data.ascii_questions=true"),
        ("text", TEXTS, "objective.masking=0.3"),
        ("text", TEXTS, "objective.cloze_words=[1, 2]"),
        ("text", TEXTS, "objective.question_batch=8"),
        ("text", TEXTS, "data.table.label=tags"),
        ("questions", QUESTIONS, "data.table.text=body"),
        ("casing", None, "data.table.text=body"),
        ("casing", None, "objective.next_token=0.5"),
        ("casing", Path("a.tsv"), "objective.next_token=0.5"),
        ("parity", None, "data.validation=0.1"),
    ],
)
def test_a_setting_without_effect_is_refused(name: str, data: Any, setting: str) -> None:
    source = choose_source(name, data)
    with pytest.raises(UserError, match=f"^{re.escape(setting)}: has no effect on this training; "):
        plan_training(source, None, Path("nowhere"), settings=[setting])


@pytest.mark.parametrize(
    "settings",
    [
        ["objective.masking=0.3"],
        ["objective.cloze_words=[1, 2]"],
        ["objective.question_batch=8"],
        ["data.ascii_questions=true"],
        ["data.table.header=true"],
        ["data.blank_lines=true", "data.documents=paragraphs"],
    ],
)
def test_a_setting_of_pretraining_without_effect_is_refused(settings: list[str]) -> None:
    says = f"^{re.escape(settings[0])}: has no effect on this training; leave it out"
    with pytest.raises(UserError, match=says):
        plan_training(DocumentSource(TEXTS), None, Path("nowhere"), settings=settings)


def test_settings_of_objectives_with_a_share_are_read() -> None:
    for recipe, unread in [
        ("modern", {"objective.masking"}),
        ("masked", {"objective.cloze_words", "objective.question_batch"}),
        ("world", {"objective.masking", "objective.cloze_words"}),
    ]:
        assert set(unread_with(RECIPES[recipe])) == unread
