"""The course's recipe is its experiment: sizes, order, schedules, and what carries loss."""

from functools import lru_cache
from math import cos, log, pi
from pathlib import Path

import pytest

from plans import plan_pretraining, plan_questions
from regard.config import override
from regard.data import IGNORE
from regard.models.builders import make_model
from regard.runs.recipe import MinGPTConfig
from regard.runs.recipes import RECIPES
from regard.tasks.examples import Example
from regard.text.corpus import Document
from regard.training.optimizers import Schedule
from regard.training.plan import Plan
from tiny import MASK, PAD

COURSE = RECIPES["course"]
CHARACTERS = [chr(i) for i in range(32, 32 + 253)]
EPOCH = 23
"""Steps of an epoch of pretraining."""


@lru_cache
def pretraining() -> Plan:
    """On a text with as many lines and characters as the course's, an empty line at its end."""
    texts = ["".join(CHARACTERS[i % 253 :][:40]) for i in range(2937)]
    corpus = [Document(text, "") for text in [*texts, ""]]
    return plan_pretraining(corpus, Path("nowhere"), COURSE)


@lru_cache
def questions() -> Plan:
    asked = [Example(text=f"Where was Jörg {i} born?", answer="Köln"[0]) for i in range(2000)]
    tokenizer = pretraining().run.tokenizer
    return plan_questions(asked, Path("nowhere"), RECIPES["course-questions"], tokenizer=tokenizer)


def test_pretraining_has_the_course_s_sizes() -> None:
    found = pretraining().describe()
    assert (found["parameters"], found["vocabulary"], found["steps"]) == (3_323_392, 256, 14_950)
    assert abs(pretraining().loss_before()["untrained_loss"] - log(256)) < 0.1


@pytest.mark.parametrize(
    ("setting", "parameters"),
    [
        ("model.positions.kind=rotary", 3_290_624),
        ("model.attention.kind=synthesizer", 3_076_988),
        ("model.kind=perceiver", 3_339_776),
    ],
)
def test_each_body_of_the_assignment_has_its_number_of_parameters(
    setting: str, parameters: int
) -> None:
    config = override(RECIPES["course"], [setting])
    model = make_model(config.model, config.head, 256)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_nothing_is_shuffled_or_held_out_and_an_epoch_ends_with_a_smaller_batch() -> None:
    plan = pretraining()
    first = plan.run.tokenizer.encode("".join(CHARACTERS[:4]))
    assert plan.sampler.steps == 650 * EPOCH
    assert plan.validation == []
    sizes = [len(plan.sampler.batch(step).input_ids) for step in (0, 21, 22, 23)]
    assert sizes == [128, 128, 122, 128]
    for step in (0, EPOCH, 100 * EPOCH):
        row = plan.sampler.batch(step).input_ids[0].tolist()
        assert set(row) - {MASK, PAD} >= set(first)
    empty_document = plan.sampler.batch(22).input_ids[-1, :2].tolist()
    assert empty_document == [MASK, PAD]  # <sep><sep>


def test_pretraining_predicts_all_but_padding() -> None:
    batch = pretraining().sampler.batch(0)
    ids, labels = batch.input_ids, batch.labels
    assert bool((labels[:, :-1][ids[:, 1:] != PAD] == ids[:, 1:][ids[:, 1:] != PAD]).all())
    assert PAD not in labels
    assert bool((labels[ids == PAD] == IGNORE).all())


def test_questions_predict_mark_place_mark_alone_and_lose_other_letters() -> None:
    plan = questions()
    batch, decode = plan.sampler.batch(0), plan.run.tokenizer.decode
    asked = decode(plan.run.tokenizer.encode("Where was Jrg 0 born?"))
    row = batch.input_ids[0][: len(asked) + 2]
    assert decode(row[: len(asked)].tolist()) == asked
    labels = batch.labels[0]
    place = plan.run.tokenizer.encode("K")
    assert labels[labels != IGNORE].tolist() == [MASK, *place, MASK]
    assert int((labels != IGNORE).nonzero()[0]) == len(asked) - 1


def test_finetuning_and_training_from_scratch_have_the_course_s_lengths() -> None:
    assert questions().sampler.steps == 75 * 8
    assert COURSE.training.schedule == MinGPTConfig(positions=200 * 2938 * 128)
    finetuning = RECIPES[COURSE.finetuning].training
    assert (finetuning.epochs, finetuning.batch, finetuning.lr) == (10, 256, 6e-4)


def test_the_schedule_is_its_formula() -> None:
    """127 positions a row, over 200 times 2,938 rows of 128."""
    sampler = pretraining().sampler
    schedule = Schedule(COURSE.training.schedule, sampler, 128)
    for step in range(0, sampler.steps, 50):
        epoch, part = divmod(step, EPOCH)
        seen = (epoch * 2938 + part * 128) * 127
        expected = max(0.1, (1 + cos(pi * seen / (200 * 2938 * 128))) / 2)
        assert schedule.factor(step) == pytest.approx(expected)
