"""The three arms on a fictional world in the form of the real data."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from made_answers import made_answer
from regard.cli import main
from regard.environment import ExecutionEnvironment
from regard.errors import UserError
from regard.evaluation.evaluate import Evaluation
from regard.experiments.birthplaces import (
    ARMS,
    NOT_PRETRAINED,
    PRETRAINED,
    WITHOUT_THEM,
    Arm,
    Data,
    Mistakes,
    birthplaces,
    mistakes,
)
from regard.experiments.birthplaces_report import birthplaces_report
from regard.experiments.stages import choose_stages
from regard.tasks.examples import Example
from regard.tasks.world import WorldConfig, make_world, save_world
from regard.text.corpus import Document
from regard.training.loop import ExecutionOptions

ENVIRONMENT = ExecutionEnvironment(torch.device("cpu"), torch.float32)
SETTINGS = ExecutionOptions(environment=ENVIRONMENT, quiet=True)
TINY = [
    "tokenizer.kind=words",
    "model.n_layers=1",
    "model.d_model=16",
    "training.steps=4",
    "questions.steps=3",
    "finetuning.steps=2",
]
MODERN = choose_stages("modern", TINY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data") / "world"
    save_world(make_world(WorldConfig(people=80, absent=20, biographies=2)), place)
    return place


@pytest.fixture(scope="module")
def data(folder: Path) -> Data:
    return Data.read(folder, MODERN.pretraining)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs") / "birthplaces"


@pytest.fixture(scope="module")
def found(data: Data, out: Path) -> dict[str, Arm]:
    return birthplaces(data, out, MODERN, SETTINGS)


def test_all_arms_answer_the_same_questions_with_the_same_words(
    found: dict[str, Arm], data: Data
) -> None:
    assert list(found) == list(ARMS)
    assert len({arm.run.tokenizer.fingerprint for arm in found.values()}) == 1
    for arm in found.values():
        assert [a.question for a in arm.evaluation.answers] == [q.text for q in data.text_only]


def test_no_arm_is_trained_on_the_questions_that_it_is_measured_by(
    found: dict[str, Arm], data: Data
) -> None:
    assert not {q.text for q in data.text_only} & {q.text for q in data.qa_train}
    for arm in found.values():
        assert arm.run.origin["questions"] == len(data.qa_train)


def test_one_arm_never_reads_of_the_people_it_is_asked_about(
    found: dict[str, Arm], data: Data
) -> None:
    left = data.without_them()
    names = [q.text.removeprefix("Where was ").removesuffix(" born?") for q in data.text_only]
    assert left
    assert names == data.names
    assert not [name for name in names for text in left if name in text.text]
    read = {name: arm.run.origin["documents"] for name, arm in found.items()}
    assert read == {PRETRAINED: len(data.corpus), NOT_PRETRAINED: 0, WITHOUT_THEM: len(left)}


def test_a_prediction_is_written_for_every_question(found: dict[str, Arm], data: Data) -> None:
    for arm in found.values():
        for name, questions in (("dev.txt", data.text_only), ("test.txt", data.unknown)):
            lines = (arm.run.path / name).read_text(encoding="utf-8").split("\n")
            assert len(lines) == len(questions) + 1


def test_the_counts_of_a_score_add_up(found: dict[str, Arm]) -> None:
    for arm in found.values():
        s = arm.score
        assert s.correct + sum(msgspec.to_builtins(s.mistakes).values()) == s.questions
        assert s.accuracy == s.correct / s.questions
        assert s.risk[-1] == pytest.approx(1 - s.accuracy)
        assert s.tokens > 0


def test_people_are_held_out_by_name(data: Data) -> None:
    held = data.held_out(10)
    assert len(set(held.names)) == 10
    assert {q.text for q in [*held.qa_train, *held.text_only]} == {q.text for q in data.qa_train}
    assert all(name in q.text for name, q in zip(held.names, held.text_only, strict=True))
    assert not [q for q in held.qa_train if any(name in q.text for name in held.names)]
    again = data._replace(qa_train=data.qa_train[::-1]).held_out(10)
    assert set(again.names) == set(held.names)
    asked = [
        Example(text=text.format(name), answer="Rome", where="q")
        for name in ("Ada Finch", "Otto Lange", "Sir Jon Agnew, 8th Baronet")
        for text in ("Where was {} born?", "In which town was {} born?")
    ]
    two = data._replace(qa_train=asked).held_out(1)
    assert len(two.text_only) == 2, "of one person, in both wordings"
    one = data._replace(qa_train=asked[::2]).held_out(2)
    assert set(one.names) < {"Ada Finch", "Otto Lange", "Sir Jon Agnew, 8th Baronet"}
    nameless = Example(text="where was he born?", answer="Rome", where="q:7")
    with pytest.raises(UserError, match="q:7: names nobody"):
        data._replace(qa_train=[*asked, nameless]).held_out(1)
    for n in (0, 40):
        with pytest.raises(UserError, match=f"can't hold out {n} people; the questions name 40"):
            data.held_out(n)


def test_operations_are_counted_if_asked_for(
    found: dict[str, Arm], data: Data, tmp_path: Path
) -> None:
    assert found[NOT_PRETRAINED].score.operations is None
    counted = replace(SETTINGS, count_operations=True)
    arm = birthplaces(data, tmp_path / "runs", MODERN, counted, [NOT_PRETRAINED])[NOT_PRETRAINED]
    assert arm.score.operations is not None
    twice = choose_stages("modern", [*TINY, "questions.steps=6"])
    longer = birthplaces(data, tmp_path / "twice", twice, counted, [NOT_PRETRAINED])[NOT_PRETRAINED]
    assert longer.score.operations is not None
    assert 1.5 < longer.score.operations / arm.score.operations < 2.5
    compiled = replace(counted, compile=True)
    with pytest.raises(UserError, match="--count-operations: counts one process"):
        birthplaces(data, tmp_path / "compiled", MODERN, compiled, [NOT_PRETRAINED])
    assert arm.score.accuracy == found[NOT_PRETRAINED].score.accuracy


def test_two_kinds_of_doubt_are_told_apart(found: dict[str, Arm], data: Data) -> None:
    names = [q.text.removeprefix("Where was ").removesuffix(" born?") for q in data.text_only]
    text = "\n".join(document.text for document in data.corpus)
    for name, arm in found.items():
        # The text of this world mentions none of the people of the questions without answers.
        assert bool(arm.score.mentioned_or_absent) == (name == PRETRAINED)
        absent = [a.question for a in arm.absent]
        assert not {a.question for a in arm.mentioned} & set(absent)
        if name == PRETRAINED:
            assert len(absent) > len(names) / 2
            assert not [q for q in absent if q[len("Where was ") : -len(" born?")] in text]
        if name == WITHOUT_THEM:
            assert absent == [q.text for q in data.text_only]


REAL = os.environ.get("REGARD_BIRTHPLACES")


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="REGARD_BIRTHPLACES doesn't name the real birth places")
def test_absent_people_are_in_no_line_of_the_real_text() -> None:
    assert REAL
    real = Data.read(Path(REAL), MODERN.pretraining)
    mentioned, absent = real.mentioned_or_absent(PRETRAINED, 0)
    assert len(mentioned) == 500
    assert len(absent) > 490
    text = (Path(REAL) / "wiki.txt").read_text(encoding="utf-8")
    for question in absent:
        name = question.text.removeprefix("Where was ").removesuffix(" born?")
        assert not re.search(rf"\b{re.escape(name)}\b", text)
    others, dev = real.mentioned_or_absent(WITHOUT_THEM, 0)
    assert len(others) > 400
    assert dev == real.text_only


def test_repeating_the_study_trains_nothing_again(
    found: dict[str, Arm], data: Data, out: Path
) -> None:
    again = birthplaces(data, out, MODERN, SETTINGS)
    for name, arm in again.items():
        before = msgspec.structs.replace(found[name].score, evaluation_seconds=0)
        assert msgspec.structs.replace(arm.score, evaluation_seconds=0) == before


@pytest.mark.usefixtures("found")
def test_another_recipe_needs_another_folder(data: Data, out: Path) -> None:
    with pytest.raises(UserError, match="is another recipe"):
        birthplaces(
            data, out, choose_stages("modern", [*TINY, "training.steps=5"]), SETTINGS, [PRETRAINED]
        )


@pytest.mark.parametrize(
    ("name", "tokenizer"), [("course", "characters"), ("default", "byte-pairs")]
)
def test_a_recipe_without_questions_is_finetuned(
    folder: Path, tmp_path: Path, name: str, tokenizer: str
) -> None:
    stages = choose_stages(name, [*TINY, f"tokenizer.kind={tokenizer}", "model.n_heads=2"])
    data = Data.read(folder, stages.pretraining)
    arm = birthplaces(data, tmp_path, stages, SETTINGS, [PRETRAINED])[PRETRAINED]
    assert arm.run.path == tmp_path / "pretrained-finetuned"
    assert arm.run.origin["parent"] == str(tmp_path / "pretrained")
    assert arm.score.steps == 4 + 2


def test_mistakes_are_told_apart() -> None:
    """Each is the first of the kinds; an answer may be none at all."""
    asked = {"Ada Finch": "Rome", "Otto Lange": "Rome", "Ida Bell": "Pisa"}
    qa_train = [Example(text=f"Where was {n} born?", answer=place) for n, place in asked.items()]
    given = {
        "Eva Moss": "Oslo",
        "Leo Moss": "Bergen",
        "Mia Bell": "Pisa",
        "Eva Finch": "Rome",
        "Max Moss": "Rome",
        "Ben Moss": "Pisa",
        "Kim Moss": "",
        "Joe Bell": "Pisa",
    }
    text_only = [Example(text=f"Where was {n} born?", answer="Oslo") for n in given]
    *stated, unstated = given
    corpus = [Document(f"{n}. {n} was born in Oslo and lives in Bergen .", "") for n in stated]
    corpus.append(Document(f"{unstated}. {unstated} lives in Bergen .", ""))
    answers = [
        made_answer(q.text, answered, q.answer)
        for q, answered in zip(text_only, given.values(), strict=True)
    ]
    evaluation = Evaluation(answers=answers, accuracy=None, confidence=None)
    kinds = mistakes(evaluation, Data(corpus, qa_train, text_only, list(given), []))
    assert kinds == Mistakes(
        not_stated=1, from_their_sentence=1, of_a_namesake=2, commonest=1, other=2
    )


def test_the_report_shows_every_arm(found: dict[str, Arm], data: Data) -> None:
    page = birthplaces_report(found, data, ENVIRONMENT).html()
    for part in (*ARMS, "Does pretraining matter?", "Wrong", "Reference", "seconds of training"):
        assert part in page
    assert page.count("<svg") == 5
    assert page.count('class="regard-view"') == 1, "attention of the model"
    assert "AUROC mentioned against absent, familiarity" in page


def test_the_command_prints_a_table_and_writes_figures(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, figures = tmp_path / "out", tmp_path / "figures.json"
    command = ["birthplaces", "--data", str(folder), "--out", str(out), "--json", str(figures)]
    seeds = ["--seed", "3", "--seed", "4", "--arm", PRETRAINED]
    assert main.run([*command, *seeds, *TINY]) == 0
    shown = capsys.readouterr().out
    assert f"Report: {out / 'seed-3' / 'report.html'}" in shown
    assert "mean" in shown
    assert "mentioned / absent" in shown
    assert "25% given" in shown
    assert shown.count("familiarity") == 2, "a row for each seed"
    written = json.loads(figures.read_text(encoding="utf-8"))
    assert [(s["arm"], s["seed"]) for s in written["scores"]] == [
        (PRETRAINED, 3),
        (PRETRAINED, 4),
    ]
    assert {*written["scores"][0]["mentioned_or_absent"]["familiarity"]} == {"value", "low", "high"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no data: pass their folder"),
        (["--data", "nowhere"], "nowhere/wiki.txt: no such file"),
        (["--data", "nowhere", "--arm", "both"], "--arm both: no such arm; there are: pretrained"),
    ],
)
def test_mistakes_of_the_user_are_told_in_a_line(
    arguments: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("REGARD_BIRTHPLACES", raising=False)
    assert main.run(["birthplaces", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_questions_in_two_wordings_are_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "two")
    two = "Where was Ada Finch born?\tRome\nIn which place was Otto Lange born?\tOslo\n"
    (tmp_path / "two/birth_dev.tsv").write_text(two, "utf-8")
    with pytest.raises(UserError, match="no names are found"):
        Data.read(tmp_path / "two", MODERN.pretraining)


def test_mentioned_people_are_in_the_text_of_the_arm() -> None:
    lines = "Ann Lee was born in Rome.", "Bob Ray met Ann Lee.", "Cy Poe was born in Oslo."
    corpus = [Document(line, f"wiki.txt:{i}") for i, line in enumerate(lines, 1)]

    def asked(*names: str) -> list[Example]:
        return [Example(text=f"Where was {name} born?", answer="Rome") for name in names]

    known, names = asked("Ann Lee", "Dan Fox"), ["Ann Lee", "Dan Fox"]
    data = Data(corpus, asked("Eve Orr"), known, names, asked("Bob Ray", "Cy Poe"))
    assert data.mentioned_or_absent(WITHOUT_THEM, 0)[0] == asked("Cy Poe")
