"""Every family that can learn a task is trained for it, and goes on after an interruption."""

import math
import warnings
from collections.abc import Collection, Iterable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
import torch

from killed import require_exact_resume
from plans import plan_finetuning, plan_pretraining, plan_questions, plan_task, plan_text
from regard.config import override
from regard.data import IGNORE
from regard.errors import UserError
from regard.models.builders import Reconstructor
from regard.models.head_config import ClassificationHeadConfig, TokenClassificationHeadConfig
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.tasks.examples import Example
from regard.tasks.probes import number_tokenizer
from regard.text.corpus import Document
from regard.training.plan import Plan
from regard.training.sources import probe
from regard.training.step import mean_loss
from tiny import MASK
from tiny_tasks import (
    CONTINUING,
    CPU,
    EMBEDDING,
    FAMILIES,
    LABELING,
    PROBES,
    SETTINGS,
    TAGGING,
    TEXT_TASKS,
    WRITING,
    examples,
    task_recipe,
)

NOWHERE = Path("nowhere")
NEXT_TOKEN = [probe for probe in PROBES if probe != "compression"]
"""Probes whose labels are predicted from the tokens up to them."""
FOR_ALL = [task for task in TEXT_TASKS if task not in ("tagging", "entailment", "world")]


def some(tasks: Iterable[str], families: Iterable[str], period: int) -> list[tuple[str, str]]:
    """Each task with each `period`-th family, beginning at another: all tasks, all families."""
    pairs = product(enumerate(tasks), enumerate(families))
    return [(task, family) for (i, task), (j, family) in pairs if (i + j) % period == 0]


LEARNED = [
    *some(FOR_ALL, FAMILIES, 4),
    *(("tagging", family) for family in (*TAGGING, "decoder")),
    *(("entailment", family) for family in (*LABELING, "encoder-decoder")),
    *(("world", "decoder"), ("copy", "rnn"), ("parity", "fixed-window")),
]
NATURAL: dict[str, Collection[str]] = {
    "classification": LABELING,
    "tagging": ("encoder, tags", "rnn, tags"),
    "retrieval": EMBEDDING,
    "casing": WRITING,
}
"""A task for each family."""
RESUMED = [
    ("classification", "encoder with segments, classification"),
    ("tagging", "rnn, tags"),
    ("retrieval", "encoder, embedding"),
    ("casing", "encoder-decoder"),
    ("casing", "fixed-window"),
    ("copy", "decoder"),
]
"""Each kind of data once, with each kind of body."""


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PROBE_ROWS", 40)


@pytest.mark.parametrize(("task", "family"), LEARNED)
def test_each_family_is_trained_for_each_task(task: str, family: str, tmp_path: Path) -> None:
    plan = plan_task(tmp_path / "run", task_recipe(task, family))
    untrained = {name: p.detach().clone() for name, p in plan.run.model.named_parameters()}
    assert plan.execute(SETTINGS).step == 2
    loaded = Run.load(tmp_path / "run")
    assert loaded.origin["stage"] == task
    assert type(loaded.model) is type(plan.run.model)
    trained = dict(loaded.model.named_parameters())
    assert any(not torch.equal(untrained[name], trained[name]) for name in untrained)


def test_rows_of_each_probe_are_predicted() -> None:
    for task, family in zip(NEXT_TOKEN, cycle(CONTINUING), strict=False):
        loss = plan_task(NOWHERE, task_recipe(task, family)).loss_before()["untrained_loss"]
        assert math.isfinite(loss), task


@pytest.mark.parametrize(("task", "family"), RESUMED)
def test_a_killed_training_goes_on_as_if_nothing_had_happened(
    task: str, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = task_recipe(task, family, "training.steps=3")
    require_exact_resume(lambda out: plan_task(out, recipe), tmp_path, 3, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "family"),
    [(task, family) for task, families in NATURAL.items() for family in families],
)
def test_each_family_learns_a_few_examples(task: str, family: str, tmp_path: Path) -> None:
    quick = ("training.steps=60", "training.lr=0.02", "task.training=4", "task.test=2")
    people = ("task.people=4",) if task == "retrieval" else ()
    plan = plan_task(tmp_path / "run", task_recipe(task, family, *quick, *people))
    untrained = plan.loss_before()["untrained_loss"]
    plan.execute(SETTINGS)
    assert mean_loss(plan.run.model, [plan.sampler.batch(0)], CPU) < untrained / 2


def test_the_loss_of_a_guess_counts_what_is_chosen_among() -> None:
    for task, family, choices in (
        ("classification", "encoder, classification", 2),
        ("entailment", "encoder, classification", 3),
        ("tagging", "encoder, tags", 4),
        ("retrieval", "encoder, embedding", 4),
        ("copy", "decoder", number_tokenizer(8).size),
    ):
        found = plan_task(NOWHERE, task_recipe(task, family)).describe()
        assert found["uniform_loss"] == pytest.approx(math.log(choices)), task


# what a batch holds


MINE = examples(("b a", "zebra"), ("a a b", "ant"), ("c", "zebra"), ("b", "bee"))


def shown(plan: Plan, row: int = 0, field: str = "input_ids") -> str:
    """A row of the first batch as text, without padding."""
    ids = plan.sampler.batch(0).inputs[field].ids[row].tolist()
    return plan.run.tokenizer.decode(ids).replace("<pad>", "")


def in_order(task: str, family: str, given: list[Example], *settings: str) -> Plan:
    return plan_task(NOWHERE, task_recipe(task, family, "training.shuffle=false", *settings), given)


def test_a_language_model_answers_behind_the_text() -> None:
    plan = in_order("translation", "decoder", MINE)
    assert shown(plan) == "<sep>b a<sep>zebra"
    labels = plan.sampler.batch(0).labels[0]
    assert plan.run.tokenizer.decode(labels[labels != IGNORE].tolist()) == "<sep>zebra<sep>"


def test_an_encoder_decoder_reads_the_text_and_writes_the_answer() -> None:
    plan = in_order("translation", "encoder-decoder", MINE)
    assert (shown(plan, field="source"), shown(plan)) == ("b a", "<sep>zebra")


def test_labels_are_those_of_the_examples_in_order() -> None:
    plan = in_order("classification", "encoder, classification", MINE)
    head = plan.run.recipe.head
    assert isinstance(head, ClassificationHeadConfig)
    assert head.labels == ("ant", "bee", "zebra")
    assert plan.sampler.batch(0).labels.tolist() == [2, 0, 2, 1]


def test_labels_that_are_given_keep_their_order_and_may_lack_examples() -> None:
    given = 'head.labels=["zebra", "yak", "bee", "ant"]'
    plan = in_order("classification", "encoder, classification", MINE, given)
    assert plan.sampler.batch(0).labels.tolist() == [0, 3, 0, 2]


PAIRS = [
    Example(text=text, second=second, answer=answer, where=f"my.tsv:{line}")
    for line, (text, second, answer) in enumerate([("b a", "c", "no"), ("a", "b b", "yes")], 1)
]


def test_an_encoder_with_segments_is_told_two_texts_apart() -> None:
    plan = in_order("entailment", "encoder with segments, classification", PAIRS)
    assert shown(plan) == "<sep>b a<sep>c"
    batch = plan.sampler.batch(0)
    types = batch.inputs["token_type_ids"].ids[:, :6]
    assert types.tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1]]
    assert batch.labels.tolist() == [0, 1]


def test_without_segments_a_mark_parts_two_texts() -> None:
    for family in ["encoder, classification", "decoder, classification", "rnn, classification"]:
        plan = in_order("entailment", family, PAIRS)
        assert list(plan.sampler.batch(0).inputs) == ["input_ids"]
        assert shown(plan) == "<sep>b a<sep>c"


def test_a_writer_answers_behind_both_texts() -> None:
    assert shown(in_order("entailment", "decoder", PAIRS)) == "<sep>b a<sep>c<sep>no"


TAGS = examples(("ab b", "Y X"), ("c abc a", "X Y Y"))


@pytest.mark.parametrize("family", TAGGING)
def test_a_tag_is_asked_for_at_the_last_token_of_its_word(family: str) -> None:
    plan = in_order("tagging", family, TAGS, "tokenizer.kind=characters")
    batch, head = plan.sampler.batch(0), plan.run.recipe.head
    assert isinstance(head, TokenClassificationHeadConfig)
    assert head.labels == ("X", "Y")
    assert shown(plan, 1) == "<sep>c abc a"
    asked = [[-1 if label == IGNORE else label for label in row] for row in batch.labels.tolist()]
    # <sep> a b _ b <pad> <pad> <pad> and <sep> c _ a b c _ a
    assert asked == [[-1, -1, 1, -1, 0, -1, -1, -1], [-1, 0, -1, -1, -1, 1, -1, 1]]


def test_a_tokenizer_knows_tags_where_they_are_written() -> None:
    for family, written in (("encoder, tags", ""), ("decoder", "XY")):
        recipe = task_recipe("tagging", family, "tokenizer.kind=characters")
        tokenizer = plan_task(NOWHERE, recipe, TAGS).run.tokenizer
        assert tokenizer.size == 2 + len("abc " + written), family


def test_examples_are_held_out_by_the_seed() -> None:
    recipe = task_recipe("casing", "decoder", "data.validation=0.25", "training.epochs=1")
    plan = plan_task(NOWHERE, recipe)
    assert sum(len(batch.input_ids) for batch in plan.validation) == 3
    rows = [len(plan.sampler.batch(i).input_ids) for i in range(plan.sampler.steps)]
    assert sum(rows) == 12 - 3


def test_the_tasks_own_examples_are_those_of_the_recipes_seed() -> None:
    recipe = task_recipe("casing", "decoder", "seed=5")
    own, given = (plan_task(NOWHERE, recipe, e) for e in (None, _training(recipe)))
    assert own.run.origin["fingerprint"] == given.run.origin["fingerprint"]
    other = plan_task(NOWHERE, task_recipe("casing", "decoder", "seed=6"))
    assert other.run.origin["fingerprint"] != own.run.origin["fingerprint"]


@pytest.mark.parametrize(("questions", "rows"), [(0.5, {4, 3}), (0.0, {4})])
def test_texts_of_a_task_are_mixed_in_by_the_objective(questions: float, rows: set[int]) -> None:
    settings = ("training.steps=40", "objective.next_token=0.5", "objective.question_batch=3")
    recipe = task_recipe("world", "decoder", *settings, f"objective.questions={questions}")
    plan = plan_task(NOWHERE, recipe)
    batches = [plan.sampler.batch(step) for step in range(40)]
    assert {len(batch.labels) for batch in batches} == rows
    assert plan.run.origin["documents"] == 80
    given = plan_task(NOWHERE, recipe, _training(recipe))
    assert given.run.origin["documents"] == 0
    assert {len(given.sampler.batch(step).labels) for step in range(3)} == {4}


def test_a_task_with_texts_is_for_what_continues_them() -> None:
    for family in sorted(FAMILIES.keys() - CONTINUING.keys()):
        refused(r"requires a causal language model", task_recipe("world", family))


def _training(recipe: Any) -> list[Example]:
    return list(recipe.task.make(recipe.seed).training)


# too long


LONG = examples(("a" * 400, "b"), ("a" * 10, "b"), ("a" * 321, "c"))


@pytest.mark.parametrize(
    ("family", "cut", "kept"),
    [
        ("decoder", "2 of 3 texts", "<sep>" + "a" * 240 + "<sep>b"),
        ("encoder-decoder", "2 of 3 texts", "a" * 320),
        ("rnn-encoder-decoder", "2 of 3 texts", "a" * 320),
        ("encoder, classification", "2 of 3 texts", "<sep>" + "a" * 319),
        ("encoder with segments, classification", "2 of 3 texts", "<sep>" + "a" * 319),
        ("encoder, embedding", "2 of 6 texts", "<sep>" + "a" * 319),
    ],
)
def test_long_texts_are_cut_and_told(family: str, cut: str, kept: str) -> None:
    with pytest.warns(UserWarning, match=cut):
        plan = in_order("classification", family, LONG)
    assert shown(plan, field=next(iter(plan.sampler.batch(0).inputs))) == kept


def test_words_beyond_the_block_are_not_asked_for() -> None:
    recipe = task_recipe("tagging", "encoder, tags", "tokenizer.kind=characters")
    with pytest.warns(UserWarning, match="1 of 2 texts"):
        plan = plan_task(NOWHERE, recipe, examples(("a " * 200, "X " * 200), ("b", "Y")))
    batch = plan.sampler.batch(0)
    assert batch.input_ids.shape[1] == 320
    assert batch.n_targets == 160 + 1


def test_texts_that_fit_are_not_warned_of() -> None:
    short = examples(("a" * 10, "b"), ("a", "c"))
    for family in FAMILIES:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plan_task(NOWHERE, task_recipe("classification", family), short)


def test_an_encoder_may_read_more_than_its_decoder_writes() -> None:
    size = "model.decoder.context_length=8"
    plan = in_order("casing", "encoder-decoder", examples(("a" * 320, "bbb")), size)
    assert plan.sampler.batch(0).inputs["source"].ids.shape == (1, 320)


def test_an_answer_that_does_not_fit_is_refused_by_its_line() -> None:
    for family in WRITING:
        long = examples(("a", "b"), ("a", "b" * 321))
        with pytest.raises(UserError, match=r"^my\.tsv:2: the answer takes 321 tokens"):
            plan_task(NOWHERE, task_recipe("casing", family), long)


# what is refused


def refused(says: str, recipe: Any, given: list[Example] | None = None, **more: Any) -> None:
    with pytest.raises(UserError, match=says) as error:
        plan_task(NOWHERE, recipe, given, **more)
    assert "\n" not in str(error.value)


def test_what_does_not_answer_learns_no_task() -> None:
    for task, head in (
        *((task, "masked-lm") for task in TEXT_TASKS),
        *((task, "token-classification") for task in TEXT_TASKS if task != "tagging"),
        *(("tagging", head) for head in ("classification", "embedding")),
    ):
        recipe = task_recipe(task, "encoder, classification", f"head.kind={head}")
        refused(f"head.kind={head}: doesn't answer", recipe)


@pytest.mark.parametrize("family", ["decoder", "rnn"])
def test_a_row_is_reconstructed_by_a_head_for_it(family: str, tmp_path: Path) -> None:
    recipe = task_recipe("compression", family, "head.kind=reconstruction")
    assert plan_task(tmp_path / "run", recipe).execute(SETTINGS).step == 2
    assert isinstance(Run.load(tmp_path / "run").model, Reconstructor)
    refused(r"set head\.kind=reconstruction", task_recipe("compression", family))
    refused(r"model\.kind=decoder, rnn or", task_recipe("copy", family, "head.kind=reconstruction"))


@pytest.mark.parametrize(
    ("recipe", "given", "says"),
    [
        (
            task_recipe("classification", "encoder-decoder", "head.kind=embedding"),
            None,
            r"head\.kind=embedding: is no head for model\.kind=encoder-decoder",
        ),
        (task_recipe("casing", "decoder"), [], r"task\.kind=casing: there are no examples"),
        (RECIPES["default"], None, r"the recipe has no task: set task\.kind"),
        (
            task_recipe(
                "classification", "encoder, classification", 'head.labels=["zebra", "bee"]'
            ),
            MINE,
            r"^my\.tsv:2: the label 'ant' is none of .*: zebra, bee$",
        ),
        (
            task_recipe("tagging", "encoder, tags", 'head.labels=["X", "Z"]'),
            TAGS,
            r"^my\.tsv:1: the label 'Y' is none of those that the model knows: X, Z$",
        ),
        (
            task_recipe("tagging", "decoder"),
            examples(("a b", "X Y"), ("a b c", "X Y")),
            r"^my\.tsv:2: has 3 words and 2 tags; ",
        ),
    ],
    ids=["head", "no examples", "no task", "label", "tag", "written tags"],
)
def test_what_does_not_fit_a_task_is_refused(
    recipe: Recipe, given: list[Example] | None, says: str
) -> None:
    refused(says, recipe, given)


def test_a_probe_longer_than_the_block_is_refused() -> None:
    for family in CONTINUING:
        fitting = task_recipe("induction", family, "task.length=320")
        assert plan_task(NOWHERE, fitting).sampler.batch(0).input_ids.shape == (4, 320)
        refused(
            "its rows take 321 tokens, but model.context_length is 320",
            task_recipe("induction", family, "task.length=321"),
        )


# pretraining and finetuning


TEXTS = [Document(f"{name} was born in Rome.", f"t:{name}") for name in ("Ada", "Otto", "Mia")]
ENCODER = (
    *("tokenizer.kind=characters", "model.n_layers=1", "model.n_heads=2", "model.d_model=16"),
    *("training.batch=3", "data.validation=0", "training.optimizer.kind=adamw"),
    *("model.positions.kind=learned", "model.context_length=64"),
)


@pytest.mark.parametrize("objective", ["masked_tokens", "masked_autoencoding"])
def test_an_encoder_learns_what_is_behind_the_masks(objective: str, tmp_path: Path) -> None:
    other = "masked_autoencoding" if objective == "masked_tokens" else "masked_tokens"
    settings = (f"objective.{objective}=1", f"objective.{other}=0", "objective.masking=0.3")
    steps = ("training.steps=80", "training.lr=0.02")
    recipe = override(RECIPES["masked"], [*ENCODER, *settings, *steps])
    plan = plan_pretraining(TEXTS, tmp_path / "run", recipe)
    batch = plan.sampler.batch(0)
    untrained = plan.loss_before()["untrained_loss"]
    assert untrained == pytest.approx(plan.describe()["uniform_loss"], rel=0.2)
    plan.execute(SETTINGS)
    assert mean_loss(plan.run.model, [batch], CPU) < untrained / 2


def test_masked_texts_are_held_out_and_measured(tmp_path: Path) -> None:
    settings = ("data.validation=0.4", "training.steps=1", "objective.masked_autoencoding=1")
    plan = plan_pretraining(
        TEXTS, tmp_path / "run", override(RECIPES["masked"], [*ENCODER, *settings])
    )
    assert [len(batch.input_ids) for batch in plan.validation] == [1, 1]
    assert plan.execute(SETTINGS).best_loss is not None


def test_a_long_text_is_masked_in_parts() -> None:
    """Each token can be asked for, and each part asks for one at least."""
    settings = ("model.context_length=8", "training.batch=1", "training.epochs=1")
    recipe = override(RECIPES["masked"], [*ENCODER, *settings, "training.shuffle=false"])
    text = "abcdefghijklmnopqrstuvwxyz"
    plan = plan_pretraining([Document(text, "t:1"), Document("", "t:2")], NOWHERE, recipe)
    seen = ""
    for number in range(plan.sampler.steps):
        batch = plan.sampler.batch(number)
        assert batch.n_targets >= 1
        assert batch.input_ids[0, 0] == MASK
        rows = zip(batch.input_ids[0].tolist()[1:], batch.labels[0].tolist()[1:], strict=True)
        seen += plan.run.tokenizer.decode([i if y == IGNORE else y for i, y in rows])
    assert seen.replace("<pad>", "") == text


def test_pretraining_refuses_what_does_not_fit() -> None:
    for recipe, settings, says in [
        ("default", ["objective.masked_tokens=1"], "are for a model that reads both ways"),
        ("default", ["objective.masked_autoencoding=0.1"], "are for a model that reads both ways"),
        ("masked", ["objective.next_token=0.1"], "learns from masked texts"),
        ("masked", ["objective.span_corruption=0.1"], "learns from masked texts"),
        ("masked", ["objective.clozes=0.1"], "learns from masked texts"),
        (
            "masked",
            ["head.kind=classification"],
            "head.kind=classification: requires a causal language model",
        ),
        ("default", ["head.kind=embedding"], "requires a causal language model"),
        ("default", ["model.kind=encoder"], "model.kind=encoder with head.kind=lm"),
        ("default", ["model.kind=encoder-decoder"], "model.kind=encoder-decoder with head"),
        ("default", ["model.kind=rnn-encoder-decoder"], "model.kind=rnn-encoder-decoder with head"),
        ("default", ["head.kind=masked-lm"], "learns from masked texts"),
        ("masked", ["model.kind=decoder"], "masked-lm: is no head for model.kind=decoder"),
        ("default", ["task.kind=casing"], "task.kind=casing: is learned by `regard train casing`"),
    ]:
        chosen = override(RECIPES[recipe], settings)
        with pytest.raises(UserError, match=says) as error:
            plan_pretraining(TEXTS, NOWHERE, chosen)
        assert "\n" not in str(error.value)


def test_questions_and_texts_are_for_what_continues_them() -> None:
    for settings in [
        ["model.kind=encoder", "head.kind=classification"],
        ["head.kind=classification"],
        ["model.kind=encoder-decoder"],
        ["task.kind=sort"],
    ]:
        says = "causal language model|`regard train sort`"
        with pytest.raises(UserError, match=says):
            plan_questions(MINE, NOWHERE, override(RECIPES["default"], settings))
        with pytest.raises(UserError, match=says):
            plan_text(TEXTS, NOWHERE, override(RECIPES["text"], settings))


def test_finetuning_keeps_the_head() -> None:
    parent = plan_task(NOWHERE, task_recipe("casing", "decoder")).run
    changed = override(parent.recipe, ["head.kind=embedding"])
    with pytest.raises(UserError, match=r"can't be changed; leave model\.\*, head\.\*"):
        plan_finetuning(parent, MINE, NOWHERE, changed)


def test_a_lone_pair_measures_nothing() -> None:
    recipe = task_recipe("retrieval", "encoder, embedding", "data.validation=0.1")  # 1 of 12
    assert not plan_task(NOWHERE, recipe).validation
    split = override(recipe, ["training.accumulation=2"])
    with pytest.raises(UserError, match=r"training\.accumulation: rows .* negatives"):
        plan_task(NOWHERE, split)
