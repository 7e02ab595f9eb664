"""The main job, as small as it can be."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec import structs

from made_answers import made_answer
from regard.cli import main
from regard.environment import ExecutionEnvironment
from regard.evaluation.report import Report
from regard.experiments.recall import (
    FINETUNED,
    FIRST_STEPS,
    NOT_PRETRAINED,
    PRETRAINED,
    STATED,
    UNTRAINED,
    ExpectedTime,
    Recall,
    _train_side_by_side,
    abstain,
    recall,
)
from regard.experiments.recall_report import GROUPS, recall_report
from regard.experiments.stages import Stages, choose_stages
from regard.runs.run import Run
from regard.tasks.world import WorldConfig
from regard.training.loggers import Logger, Record
from regard.training.loop import ExecutionOptions, InterruptedTraining

ENVIRONMENT = ExecutionEnvironment(torch.device("cpu"), torch.float32)
TINY = [
    "model.n_layers=1",
    "model.d_model=16",
    "training.steps=6",
    "training.checkpoint_every=3",
    "questions.steps=3",
    "finetuning.steps=3",
]


SMALL = [*TINY, "world.people=80", "world.absent=20", "world.biographies=2"]


class Steps(Logger):
    """Collects the steps of a training that are logged."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def log(self, record: Record) -> None:
        self.seen.append(record["step"])


def small_study(out: Path, logger: Logger) -> Recall:
    return recall(
        out,
        WorldConfig(people=80, absent=20, biographies=2),
        choose_stages("demo", TINY),
        ExecutionOptions(environment=ENVIRONMENT, quiet=True, loggers=(logger,)),
    )


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def logger() -> Steps:
    return Steps()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, logger: Steps) -> Recall:
    """The study on one thread, on which models are trained one after the other."""
    with on_threads(1):
        return small_study(tmp_path_factory.mktemp("recall") / "out", logger)


@pytest.fixture(scope="module")
def report(found: Recall) -> Report:
    return recall_report(found, ENVIRONMENT)


@pytest.mark.usefixtures("found")
def test_more_loggers_see_the_training(logger: Steps) -> None:
    assert logger.seen[:2] == [3, 6]


def test_a_peak_memory_that_is_unknown_is_no_figure(found: Recall) -> None:
    """On Windows it is NaN, for which JSON has no form."""
    assert found.peak_memory.endswith(" MB")
    unknown = found._replace(peak_memory_mb=float("nan"))
    assert unknown.peak_memory == "unknown"
    assert found.figures().keys() - unknown.figures().keys() == {"peak_memory_mb"}


def test_models_trained_side_by_side_are_those_trained_on_one_thread_each(
    found: Recall, tmp_path: Path
) -> None:
    with on_threads(2):
        together = small_study(tmp_path / "together", Steps()).arms
        assert torch.get_num_threads() == 2
    for name, run in found.arms.items():
        weights = together[name].model.state_dict()
        assert all(torch.equal(x, weights[key]) for key, x in run.model.state_dict().items()), name


def test_a_training_that_is_stopped_stops_the_other() -> None:
    def stop(_: ExecutionOptions) -> None:
        raise InterruptedTraining("stopped by the user")

    def train_on(options: ExecutionOptions) -> None:
        assert options.publishing is not None
        while True:
            with options.publishing():
                time.sleep(0.01)

    with on_threads(2), pytest.raises(InterruptedTraining, match="by the user"):
        _train_side_by_side(stop, train_on, ExecutionOptions(environment=ENVIRONMENT))


def test_the_report_tells_all_that_was_asked(found: Recall, report: Report) -> None:
    page = report.html()
    for part in (
        *found.accuracies,
        "AUROC",
        "Absent people",
        "Reference",
        "<title>Recalled or made up?</title>",
        "seed",
        "torch",
        "seconds",
    ):
        assert part in page
    assert page.count("<svg") == 4
    assert page.count('class="regard-view"') == 1, "attention of the model"


def test_right_answers_are_ranked_and_inventions_compared_with_chance(found: Recall) -> None:
    """Every second answer is right, and every invention a place of a namesake: it is told."""
    half = [
        structs.replace(answer, best_guess=answer.expected if i % 2 else "nowhere")
        for i, answer in enumerate(found.text_only)
    ]
    known = {p.name.split()[1]: p.place for p in found.world.people if p.statements}
    absent = [
        structs.replace(answer, best_guess=known[person.name.split()[1]])
        for person, answer in zip(found.world.group("absent"), found.absent, strict=True)
    ]
    changed = found._replace(text_only=half, absent=absent)
    results = recall_report(changed, ENVIRONMENT).results
    areas = results["AUROC, right against wrong"]
    assert set(areas) == set(half[0].scores)
    assert all(re.fullmatch(r"\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\]", text) for text in areas.values())
    shown = results["Invented answers"]["a birthplace of someone with that last name"]
    share, chance = shown.split(", by chance ")
    assert share.startswith("100.0%")
    assert 0 < float(chance.rstrip("%")) < 50


def test_every_answer_has_a_verdict(found: Recall, report: Report) -> None:
    for group, counts in found.verdicts.items():
        assert sum(counts.values()) == len(found.world.group(group))
        stated = group != "absent"
        assert set(counts) <= ({"recalled", "misremembered"} if stated else {"lucky", "invented"})
    shown = report.results["Verdicts by group"]
    assert list(shown) == list(GROUPS.values())
    counted = [sum(map(int, re.findall(r"\d+", line))) for line in shown.values()]
    assert counted == [len(found.world.group(group)) for group in GROUPS]


def test_the_report_opens_with_an_answer_of_each_verdict(found: Recall) -> None:
    signal = found.chosen.signal
    by_chance = [structs.replace(a, best_guess=a.expected) for a in found.text_only[:3]]
    guessed = structs.replace(found.absent[0], best_guess=found.world.group("absent")[0].place)
    mixed = found._replace(
        text_only=[*by_chance, *found.text_only[3:]], absent=[guessed, *found.absent[1:]]
    )
    shown = recall_report(mixed, ENVIRONMENT).examples
    assert [one.verdict for one in shown] == ["recalled", "lucky", "misremembered", "invented"]
    assert shown[0].confidence == max(answer.scores[signal] for answer in by_chance)
    assert [bool(one.stated) for one in shown] == [True, False, True, False]
    alike = [structs.replace(a, best_guess=a.expected) for a in found.text_only]
    verdicts = [
        one.verdict for one in recall_report(found._replace(text_only=alike), ENVIRONMENT).examples
    ]
    assert len(verdicts) == 4
    assert verdicts[0] == "recalled"


def test_the_calibrated_half_is_not_reported(found: Recall) -> None:
    answers = [*found.text_only, *found.absent]
    asked = {answer.question for answer in found.abstention.answers}
    assert len(asked) == len(found.abstention.answers) == len(answers) // 2
    assert asked < {answer.question for answer in answers}


@pytest.mark.parametrize("tells", [True, False])
def test_a_model_abstains_where_signals_tell_nothing(tells: bool) -> None:
    rng = np.random.default_rng(0)
    right = rng.random(400) < 0.5
    sure = right + 0.1 * rng.normal(size=400) if tells else rng.normal(size=400)
    answers = [
        made_answer(str(i), "Rome" if right[i] else "Oslo", "Rome", confidence=float(sure[i]))
        for i in range(400)
    ]
    found = abstain(answers, seed=1, max_error=0.2).answers
    given = [answer for answer in found if not answer.abstained]
    assert (len(given) > 80) is tells
    assert sum(not answer.correct for answer in given) <= 0.2 * len(given)


def test_all_models_know_the_same_words(found: Recall) -> None:
    assert set(found.arms) == {PRETRAINED, FINETUNED, NOT_PRETRAINED, UNTRAINED}
    assert len({run.tokenizer.fingerprint for run in found.arms.values()}) == 1


def test_text_alone_is_read_as_often_as_text_among_questions(found: Recall) -> None:
    text_only = Run.load(found.arms[PRETRAINED].path.parent / "text-only")
    assert text_only.origin["steps"] == round(0.8 * 6)
    assert text_only.origin["questions"] == 0


def test_demo_prints_a_table_and_the_path_of_the_report(
    found: Recall, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its figures are those of the study with the same seed."""
    out, figures = tmp_path / "out", tmp_path / "figures.json"
    command = ["demo", "--out", str(out), "--json", str(figures), "--device", "cpu"]
    with on_threads(1):
        assert main.run([*command, "--precision", "float32", *SMALL]) == 0
    shown, told = capsys.readouterr()
    assert told.startswith("pretrained (1 of 4) ")
    assert shown.startswith(f"Folder: {out}\n")
    for name, folder in ((PRETRAINED, "pretrained"), (FINETUNED, "finetuned"), (UNTRAINED, "–")):
        assert re.search(rf"{name} .*% .*│ {folder} ", shown), "rows have their folders"
    assert "AUROC: share of pairs" in shown
    assert "Chosen:" in shown
    assert f"Report: {out / 'report.html'}" in shown
    assert "always the commonest place" in shown
    again = json.loads(figures.read_text())
    assert 0 <= again["auroc"] <= 1
    for changing in ("seconds", "peak_memory_mb"):
        assert again.pop(changing) > 0
    assert again.items() <= found.figures().items()


def test_a_demo_needs_absent_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["demo", "--out", str(tmp_path / "out"), *TINY, "world.absent=1"]) == 2
    assert "world.absent = 1: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_demo_may_have_its_seed_as_a_setting_and_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = []

    def stop(_out: Path, world: WorldConfig, stages: Stages, _options: ExecutionOptions) -> None:
        seeds.extend([world.seed, stages.pretraining.seed])
        raise InterruptedTraining("")

    monkeypatch.setattr("regard.experiments.recall.recall", stop)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    main.run(["demo", "seed=3"])
    assert seeds == [3, 3]
    says = f"Folder: {Path('runs/demo-2')}, since {Path('runs/demo')} exists\n"
    assert capsys.readouterr().out == says


@pytest.mark.parametrize(("left", "lines"), [(2 * STATED, 1), (STATED / 4, 0)])
def test_a_demo_longer_than_stated_is_announced_once(
    left: float, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = ExpectedTime(ENVIRONMENT)
    logger.log({"step": FIRST_STEPS - 1, "seconds_left": 1e6})  # the first steps warm up
    for step in (FIRST_STEPS, FIRST_STEPS + 20):
        logger.log({"step": step, "seconds_left": left})
    assert len(capsys.readouterr().err.splitlines()) == lines


def test_runs_record_the_files_of_the_world(found: Recall) -> None:
    """`regard calibrate` couldn't check which questions training had."""
    world = found.arms[PRETRAINED].path.parent / "world"
    text, questions = (str(world / name) for name in ("wiki.txt", "birth_places_train.tsv"))
    assert found.arms[PRETRAINED].origin["inputs"] == [text, questions]
    assert found.arms[FINETUNED].origin["inputs"] == [questions]
