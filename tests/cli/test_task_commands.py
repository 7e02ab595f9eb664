"""Tasks from the command line: trained for, scored, and asked, on the smallest data."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from plans import plan_task
from regard import api
from regard.evaluation import tasks
from regard.runs.recipes import TASKS
from regard.runs.run import Run
from regard.tasks.registry import TextTask
from regard.training.sources import probe
from tiny import MODEL, STEPS, Command, succeeded
from tiny_tasks import TEXT_TASKS, WRITING, task_recipe, task_settings

pytestmark = pytest.mark.usefixtures("folder")

NATURAL = {
    "casing": "encoder-decoder",
    "summaries": "rnn-encoder-decoder",
    "translation": "decoder",
    "classification": "encoder, classification",
    "tagging": "decoder, tags",
    "entailment": "encoder with segments, classification",
    "retrieval": "encoder, embedding",
    "world": "decoder",
    "mqar": "rnn",
    "parity": "rnn",
    "compression": "decoder, reconstruction",
}
"""A family for each task of texts, and for probes of each kind."""
BYTE_PAIRS = ("tokenizer.kind=byte-pairs", "tokenizer.size=300")
FIGURES = {"value", "low", "high"}
LABELS = ("fine\tgood", "bad\tpoor", "so so\tpoor", "great\tgood", "awful\tpoor")
TRANSLATED = ("a b\tb a", "a c\tc a", "c c b\tb c c", "b\tb")


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PROBE_ROWS", 8)
    monkeypatch.setattr(tasks, "PROBE_ROWS", 8)


def train(regard: Command, task: str, *arguments: str, family: str = "") -> str:
    """What training for a task prints; the run is `new`."""
    settings = task_settings(task, family or NATURAL[task])
    return succeeded(regard("train", task, "--out", "new", *settings, *arguments)).out


def write_lines(path: Path, *lines: str) -> None:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_all_tasks_are_listed_with_a_line_each(regard: Command) -> None:
    lines = succeeded(regard("tasks")).out.splitlines()
    assert [line.split()[0] for line in lines] == ["questions", "text", *TASKS]
    assert all(len(line.split(maxsplit=1)[1]) > 10 for line in lines)


# on examples of its own


@pytest.mark.parametrize("task", NATURAL)
def test_a_task_is_trained_for_and_scored_on_its_own_examples(
    regard: Command, folder: Path, task: str
) -> None:
    out = train(regard, task, *BYTE_PAIRS, "--json", "facts.json")
    facts = read_json(folder / "facts.json")
    assert facts["steps_done"] == 2
    assert "Run: new\n" in out
    loaded = Run.load(folder / "new")
    assert loaded.origin["stage"] == task
    assert loaded.origin["inputs"] == []
    assert loaded.origin["questions"] == (12 if task in TEXT_TASKS else 0)
    outcome = succeeded(regard("evaluate", "new", "--json", "figures.json"))
    assert outcome.new == ["figures.json"]
    assert not outcome.changed
    figures = read_json(folder / "figures.json")
    assert set(figures["this run"]) == set(next(reversed(figures.values())))
    assert bool(figures.keys() - {"this run"}) == (task in TEXT_TASKS)
    for name, scores in figures.items():
        assert f"\n{name}: " in "\n" + outcome.out
        assert all(set(interval) == FIGURES for interval in scores.values())


def test_a_dry_run_of_a_task_tells_sizes_and_leaves_nothing(regard: Command, folder: Path) -> None:
    command = ("train", "classification", "--out", "new", "--dry-run", "--json", "facts.json")
    settings = task_settings("classification", "encoder, classification")
    outcome = succeeded(regard(*command, *settings))
    assert outcome.new == ["facts.json"]
    facts = read_json(folder / "facts.json")
    assert facts["uniform_loss"] == pytest.approx(math.log(2))
    assert "untrained loss: " in outcome.out


def test_the_seed_decides_examples_and_weights(regard: Command, folder: Path) -> None:
    train(regard, "casing", "--seed", "7")
    loaded = Run.load(folder / "new")
    recipe = task_recipe("casing", "encoder-decoder", "seed=7")
    assert loaded.recipe == recipe
    expected = plan_task(folder / "other", recipe)
    assert loaded.origin["fingerprint"] == expected.run.origin["fingerprint"]


def test_a_finished_task_is_resumed_without_change(regard: Command, folder: Path) -> None:
    train(regard, "classification")
    before = (folder / "new/model.safetensors").read_bytes()
    resumed = train(regard, "classification", "--resume")
    assert "To score it: regard evaluate new\n" in resumed
    assert (folder / "new/model.safetensors").read_bytes() == before


# on the user's examples


def test_tab_separated_and_json_lines_are_the_same_examples(regard: Command, folder: Path) -> None:
    write_lines(folder / "mine.tsv", *LABELS)
    lines = [line.split("\t") for line in LABELS]
    write_lines(folder / "mine.jsonl", *(json.dumps({"text": a, "label": b}) for a, b in lines))
    made = []
    for number, name in enumerate(("mine.tsv", "mine.jsonl")):
        settings = task_settings("classification", "encoder, classification")
        succeeded(regard("train", "classification", name, "--out", f"run{number}", *settings))
        made.append(Run.load(folder / f"run{number}"))
        assert made[-1].origin["inputs"] == [str(Path(name).resolve())]
        assert made[-1].origin["questions"] == len(LABELS)
    assert made[0].recipe == made[1].recipe
    assert made[0].origin["fingerprint"] == made[1].origin["fingerprint"]
    weights = [(folder / f"run{i}/model.safetensors").read_bytes() for i in (0, 1)]
    assert weights[0] == weights[1]


def test_a_users_examples_are_scored_without_baselines(regard: Command, folder: Path) -> None:
    write_lines(folder / "mine.tsv", *LABELS)
    train(regard, "classification", "mine.tsv")
    flags = ("--predictions", "answers.txt", "--json", "figures.json")
    outcome = succeeded(regard("evaluate", "new", "mine.tsv", *flags))
    assert sorted(outcome.new) == ["answers.txt", "figures.json"]
    answers = (folder / "answers.txt").read_text("utf-8").splitlines()
    right = [line.split("\t")[1] for line in LABELS]
    assert set(answers) <= {"good", "poor"}
    figures = read_json(folder / "figures.json")
    assert set(figures) == {"this run"}
    hits = sum(a == b for a, b in zip(answers, right, strict=True))
    assert figures["this run"]["accuracy"]["value"] == pytest.approx(hits / len(LABELS))
    # A label that training hasn't seen is never given.
    write_lines(folder / "other.tsv", "fine\tunheard of", "bad\tunheard of")
    outcome = succeeded(regard("evaluate", "new", "other.tsv"))
    assert "accuracy 0.000" in outcome.out


def test_any_text_makes_examples_of_casing(regard: Command, folder: Path) -> None:
    write_lines(folder / "my.txt", "Straße und Maß", "", "Ada Finch", "ß")
    with pytest.warns(UserWarning, match=r"my\.txt: left out .* longer: ß \(3\)$"):
        train(regard, "casing", "my.txt")
    loaded = Run.load(folder / "new")
    assert loaded.origin["questions"] == 2 * 2  # in either case; of «ß», nothing is left
    assert loaded.tokenizer.encode("STRAE UND MA")
    with pytest.warns(UserWarning, match=r"ß \(3\)$"):
        succeeded(regard("evaluate", "new", "my.txt", "--predictions", "answers.txt"))
    assert len((folder / "answers.txt").read_text("utf-8").splitlines()) == 4


@pytest.mark.parametrize("family", ["decoder", "encoder, classification"])
def test_long_texts_are_told_in_training_and_in_evaluation(
    regard: Command, folder: Path, family: str
) -> None:
    write_lines(folder / "mine.tsv", "ab " * 200 + "\ta", "b\ta", "ba\tb")
    with pytest.warns(UserWarning, match="1 of 3 texts don't fit"):
        train(regard, "classification", "mine.tsv", family=family)
    outcome = succeeded(regard("evaluate", "new", "mine.tsv"))
    assert "1 texts don't fit the model and were truncated\n" in outcome.out


def test_a_task_takes_the_tokenizer_of_a_run(regard: Command, folder: Path) -> None:
    write_lines(folder / "mine.tsv", *TRANSLATED)
    train(regard, "translation", "mine.tsv")
    settings = task_settings("translation", "decoder")
    flags = ("--out", "other", "--tokenizer", "new")
    succeeded(regard("train", "translation", "mine.tsv", *flags, *settings))
    one, other = Run.load(folder / "new"), Run.load(folder / "other")
    assert one.tokenizer.fingerprint == other.tokenizer.fingerprint


# what it writes


@pytest.mark.parametrize("family", ["decoder", "rnn-encoder-decoder"])
def test_a_trained_run_answers_prompts(regard: Command, folder: Path, family: str) -> None:
    write_lines(folder / "mine.tsv", *TRANSLATED)
    train(regard, "translation", "mine.tsv", family=family)
    loaded, command = Run.load(folder / "new"), ("generate", "new", "a b", "c", "--json")
    sampling = ("--num-return-sequences", 3, "--temperature", 1, "--seed", 2, "--max-new-tokens", 6)
    out = succeeded(regard(*command, *sampling)).out
    sampled = [json.loads(line) for line in out.splitlines()]
    expected = api.generate(
        loaded, ["a b"] * 3 + ["c"] * 3, temperature=1, seed=2, max_new_tokens=6
    )
    assert [record["text"] for record in sampled] == expected
    assert [record["sample"] for record in sampled] == [0, 1, 2] * 2
    search = ("--num-beams", 4, "--num-return-sequences", 2, "--max-new-tokens", 6)
    found = [json.loads(line) for line in succeeded(regard(*command, *search)).out.splitlines()]
    best = api.beam_search(
        loaded, ["a b", "c"], num_beams=4, num_return_sequences=2, max_new_tokens=6
    )
    assert [(r["text"], r["score"]) for r in found] == [(b.text, b.score) for r in best for b in r]
    assert [record["prompt"] for record in found] == ["a b", "a b", "c", "c"]


def test_generation_answers_as_the_evaluation_does(regard: Command, folder: Path) -> None:
    write_lines(folder / "mine.tsv", *TRANSLATED)
    train(regard, "translation", "mine.tsv", family="encoder-decoder")
    succeeded(regard("evaluate", "new", "mine.tsv", "--predictions", "answers.txt"))
    prompts = [line.split("\t")[0] for line in TRANSLATED]
    written = succeeded(regard("generate", "new", *prompts)).out.splitlines()
    answers = (folder / "answers.txt").read_text("utf-8").splitlines()
    assert [" ".join(text.split()) for text in written] == answers
    write_lines(folder / "asked.tsv", *prompts)
    told = succeeded(regard("evaluate", "new", "asked.tsv", "--predictions", "again.txt")).out
    assert (folder / "again.txt").read_text("utf-8").splitlines() == answers
    assert f"{len(prompts)} answers" in told


def test_a_run_that_labels_prints_the_labels(regard: Command, folder: Path) -> None:
    write_lines(folder / "mine.tsv", *LABELS)
    train(regard, "classification", "mine.tsv")
    prompts = [line.split("\t")[0] for line in LABELS]
    write_lines(folder / "asked.tsv", *prompts)
    succeeded(regard("evaluate", "new", "asked.tsv", "--predictions", "answers.txt"))
    out = succeeded(regard("generate", "new", *prompts)).out
    assert out == (folder / "answers.txt").read_text("utf-8")
    records = [
        json.loads(line)
        for line in succeeded(regard("generate", "new", *prompts, "--json")).out.splitlines()
    ]
    assert [record["prompt"] for record in records] == prompts
    assert [record["text"] for record in records] == out.splitlines()
    assert all(0.5 <= record["probability"] <= 1 for record in records)


TAGGED = ("Ada comes\tX Y", "from Rome.\tY Y")


def test_words_are_tagged_from_files_and_prompts(regard: Command, folder: Path) -> None:
    write_lines(folder / "mine.tsv", *TAGGED)
    lines = [line.split("\t") for line in TAGGED]
    write_lines(folder / "mine.jsonl", *(json.dumps({"text": a, "tags": b}) for a, b in lines))
    train(regard, "tagging", "mine.tsv")
    scored = [
        succeeded(regard("evaluate", "new", name, "--predictions", f"{name}.txt")).out
        for name in ("mine.tsv", "mine.jsonl")
    ]
    assert scored[0].splitlines()[1:] == scored[1].splitlines()[1:]
    assert "exact match" in scored[0]
    told = (folder / "mine.tsv.txt").read_text("utf-8")
    assert [len(line.split()) for line in told.splitlines()] == [2, 2]
    assert succeeded(regard("generate", "new", *(text for text, _ in lines))).out == told


STATED = ("a b.\ta\tyes", "a b.\tc\tno", "c\tb\tno", "c\tc\tyes")


@pytest.mark.parametrize("task", ["entailment", "classification"])
def test_pairs_are_labeled_from_files_and_prompts(regard: Command, folder: Path, task: str) -> None:
    write_lines(folder / "mine.tsv", *STATED)
    names = ("text", "second", "label")
    rows = [dict(zip(names, line.split("\t"), strict=True)) for line in STATED]
    write_lines(folder / "mine.jsonl", *map(json.dumps, rows))
    train(regard, task, "mine.tsv", family="encoder with segments, classification")
    for name in ("mine.tsv", "mine.jsonl"):
        succeeded(regard("evaluate", "new", name, "--predictions", f"{name}.txt"))
    told = (folder / "mine.tsv.txt").read_text("utf-8")
    assert (folder / "mine.jsonl.txt").read_text("utf-8") == told
    prompts = [f"{row['text']}\t{row['second']}" for row in rows]
    assert succeeded(regard("generate", "new", *prompts)).out == told
    if task == "entailment":
        write_lines(folder / "asked.tsv", *prompts)
        succeeded(regard("evaluate", "new", "asked.tsv", "--predictions", "again.txt"))
        assert (folder / "again.txt").read_text("utf-8") == told


# info


@pytest.mark.parametrize("family", [*WRITING, "encoder, classification"])
def test_info_tells_the_family(regard: Command, family: str) -> None:
    train(regard, "classification", family=family)
    out = succeeded(regard("info", "new")).out
    recipe = task_recipe("classification", family)
    kind = recipe.model.__struct_config__.tag
    assert f"{kind}, {recipe.model.summary}\n" in out
    assert "classification\n" in out
    assert "2 of 2\n" in out


def test_an_encoder_is_pretrained_by_masks(regard: Command, folder: Path) -> None:
    settings = (*MODEL, *STEPS, "data.validation=0.25")
    flags = ("--recipe", "masked", "--out", "new", "--json", "facts.json")
    succeeded(regard("pretrain", "text.txt", *flags, *settings))
    facts = read_json(folder / "facts.json")
    assert 0 < facts["validation_loss"] < 2 * facts["uniform_loss"]
    assert "encoder, 1 layers" in succeeded(regard("info", "new")).out


def test_the_examples_are_those_that_the_library_makes(regard: Command, folder: Path) -> None:
    train(regard, "casing", *BYTE_PAIRS)
    succeeded(regard("evaluate", "new", "--predictions", "answers.txt"))
    recipe = Run.load(folder / "new").recipe
    assert recipe.task == task_recipe("casing", "encoder-decoder").task
    assert isinstance(recipe.task, TextTask)
    split = recipe.task.make(recipe.seed)
    answers = (folder / "answers.txt").read_text("utf-8").splitlines()
    assert len(answers) == len(split.test)
