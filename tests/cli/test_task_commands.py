"""Tasks from the command line: trained for, scored, and asked, on the smallest data."""

import json
from pathlib import Path
from typing import Any

import pytest

from plans import plan_task
from regard.runs.recipes import TASKS
from regard.runs.run import Run
from tiny import Command, succeeded
from tiny_tasks import TEXT_TASKS, task_recipe, task_settings

pytestmark = pytest.mark.usefixtures("folder", "few_rows")

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


# what it writes


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
    succeeded(regard("evaluate", "new", "mine.tsv", "--predictions", "answers.jsonl"))
    rows = map(json.loads, (folder / "answers.jsonl").read_text("utf-8").splitlines())
    first = next(rows)
    assert first.keys() == {"predicted", "confidence"}
    assert " ".join(first["predicted"].split()) == answers[0]


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
