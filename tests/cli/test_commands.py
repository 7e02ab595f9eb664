"""Every command does what it says, on the smallest data."""

import gc
import io
import json
import math
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from regard import __version__, api
from regard.cli import main
from regard.config import convert, override
from regard.errors import UserError
from regard.evaluation.evaluate import save_predictions
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.tasks.world import WorldConfig, make_world
from regard.text.config import BytePairsConfig
from tiny import (
    BIOGRAPHIES,
    MASK,
    MIXED,
    MODEL,
    PEOPLE,
    QUESTIONS,
    STEPS,
    Command,
    refused,
    succeeded,
)

pytestmark = pytest.mark.usefixtures("run")

FILES = {"config.toml", "origin.json", "tokenizer.json", "model.safetensors", "metrics.jsonl"}
ALPHABET = sorted(set("".join(BIOGRAPHIES)))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def metrics(run: Path) -> list[dict[str, float]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


# world


def test_world_writes_the_world_of_its_settings(regard: Command, folder: Path) -> None:
    outcome = succeeded(
        regard("world", "--out", "deep/world", "people=80", "absent=5", "biographies=2", "seed=3")
    )
    made = make_world(WorldConfig(people=80, absent=5, biographies=2, seed=3))
    assert (folder / "deep/world/wiki.txt").read_text("utf-8").splitlines() == list(made.documents)
    assert outcome.out.startswith("160 biographies; people: 40 qa_train, 40 text_only, 5 absent\n")
    assert len(outcome.new) == 7
    assert not outcome.changed


# pretrain


def test_a_dry_run_tells_sizes_and_leaves_nothing(regard: Command, folder: Path) -> None:
    flags = ("--out", "new", "--dry-run", "--json", "facts.json")
    outcome = succeeded(regard("pretrain", "text.txt", *flags, *MODEL, *STEPS))
    assert outcome.new == ["facts.json"]
    facts = read_json(folder / "facts.json")
    assert facts["vocabulary"] == len(ALPHABET) + 2
    assert facts["steps"] == 3
    assert facts["uniform_loss"] == pytest.approx(math.log(len(ALPHABET) + 2))
    assert facts["untrained_loss"] == pytest.approx(facts["uniform_loss"], abs=0.2)
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
        assert f"{name.replace('_', ' ')}: {shown}\n" in outcome.out


def test_pretraining_makes_a_run(regard: Command, folder: Path) -> None:
    flags = ("--out", "new", "--json", "facts.json", "--device", "cpu")
    outcome = succeeded(regard("pretrain", "text.txt", *flags, *MODEL, *STEPS))
    assert {path.name for path in (folder / "new").iterdir()} >= FILES
    assert [record["step"] for record in metrics(folder / "new")] == [1, 2, 3]
    facts = read_json(folder / "facts.json")
    assert facts["steps_done"] == 3
    assert "untrained_loss" not in facts
    assert "Run: new\n" in outcome.out
    loaded = Run.load(folder / "new")
    assert loaded.origin["stage"] == "pretraining"
    assert loaded.origin["inputs"] == [str(Path("text.txt").resolve())]
    assert loaded.recipe == override(RECIPES["default"], [*MODEL, *STEPS])


def test_training_lowers_the_loss_below_that_of_the_letters_frequencies(
    regard: Command, folder: Path
) -> None:
    settings = ("training.steps=80", "training.lr=0.01", "data.validation=0.2")
    flags = ("--out", "new", "--json", "facts.json", "--precision", "float32")
    outcome = succeeded(regard("pretrain", "text.txt", *flags, *MODEL, *STEPS, *settings))
    facts = read_json(folder / "facts.json")
    text = "".join(BIOGRAPHIES)
    entropy = -sum(
        text.count(c) / len(text) * math.log(text.count(c) / len(text)) for c in ALPHABET
    )
    assert facts["validation_loss"] < entropy < facts["uniform_loss"]
    assert metrics(folder / "new")[-1]["loss"] < entropy
    assert f"validation loss: {facts['validation_loss']:.4f}" in outcome.out
    assert f"weights: of step {facts['best_step']}, with the lowest validation" in outcome.out


def test_the_text_of_a_pretraining_is_indexed(regard: Command, folder: Path) -> None:
    for name, flags in {"with": (), "without": ("--no-index",)}.items():
        made = ("--out", name, *flags, *MODEL, "tokenizer.kind=byte-pairs", *STEPS)
        outcome = succeeded(regard("pretrain", "text.txt", *made))
        assert ("Index: with/corpus.index" in outcome.out) == (name == "with")
        assert "no index" not in outcome.out
    assert not (folder / "without/corpus.index").exists()
    found = succeeded(regard("find", "with/corpus.index", "Mia Bell"))
    assert "text.txt:3" in found.out
    tuned = ("--from", "with", "--out", "tuned", "training.steps=2")
    succeeded(regard("finetune", "pairs.tsv", *tuned))
    asked = succeeded(regard("ask", "tuned", "Where was Mia Bell born?", "--json"))
    assert json.loads(asked.out)["evidence"]["documents"] == 1
    (folder / "with/corpus.index").unlink()
    again = ("--resume", "--out", "with", *MODEL, "tokenizer.kind=byte-pairs", *STEPS)
    succeeded(regard("pretrain", "text.txt", *again))
    assert (folder / "with/corpus.index").exists()


def test_without_pydivsufsort_a_line_says_how_to_index(
    regard: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("regard.training.sources.documents", "regard.corpus.index"):
        monkeypatch.setattr(f"{module}.can_index", lambda: False)
    outcome = succeeded(regard("pretrain", "text.txt", "--out", "new", *MODEL, *STEPS))
    assert "pip install 'regard[index]'" in outcome.out
    assert not (folder / "new/corpus.index").exists()


def test_several_files_and_questions_are_mixed_into_pretraining(
    regard: Command, folder: Path
) -> None:
    (folder / "more.txt").write_text("Zoë.\n", encoding="utf-8")
    files, flags = ("text.txt", "more.txt"), ("--questions", "pairs.tsv", "--out", "new")
    succeeded(regard("pretrain", *files, *flags, *MODEL, *MIXED, *STEPS))
    loaded = Run.load(folder / "new")
    assert (loaded.origin["documents"], loaded.origin["questions"]) == (9, 8)
    inputs = [str(Path(name).resolve()) for name in (*files, "pairs.tsv")]
    assert loaded.origin["inputs"] == inputs
    loaded.tokenizer.encode(f"Zoë {QUESTIONS[0].text}")  # letters of each


def weights(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


# finetune, train


def test_finetuning_goes_on_from_a_run_and_leaves_it_as_it_is(
    regard: Command, folder: Path, run: Path
) -> None:
    command = ("finetune", "pairs.tsv", "--from", "run", "--out", "fine", *STEPS)
    assert "loss before: " in succeeded(regard(*command, "--dry-run")).out
    outcome = succeeded(regard(*command))
    assert "loss before: " not in outcome.out
    assert not outcome.changed
    parent, child = Run.load(run), Run.load(folder / "fine")
    assert child.tokenizer.fingerprint == parent.tokenizer.fingerprint
    assert child.recipe.model == parent.recipe.model
    assert child.origin["parent"] == "run"
    assert child.origin["stage"] == "finetuning"
    assert weights(run) != weights(folder / "fine")


def test_conversations_are_trained_on_continued_and_scored(regard: Command, folder: Path) -> None:
    first, second = ({"question": name, "answer": "Oslo"} for name in ("Ada", "Mia"))
    turns = [first, second]
    records = [json.dumps({"turns": turns}), json.dumps({"turns": turns[:1]})]
    (folder / "chats.jsonl").write_text("\n".join(records), "utf-8")
    (folder / "turn.jsonl").write_text(records[1], "utf-8")
    succeeded(regard("finetune", "chats.jsonl", "--from", "run", "--out", "fine", *STEPS))
    succeeded(regard("evaluate", "fine", "chats.jsonl", "--predictions", "said.txt"))
    said = (folder / "said.txt").read_text("utf-8").splitlines()
    asked = ("Mia", "--history", "turn.jsonl")
    generated = succeeded(regard("generate", "fine", *asked, "--max-new-tokens", 32)).out
    assert " ".join(generated.split()) == said[0]
    reply = json.loads(succeeded(regard("ask", "fine", *asked, "--json")).out)
    assert reply["best_guess"].split() == said[0].split()
    refused(regard("generate", "fine", *asked, "--raw"), "--history", "--raw")
    loaded = Run.load(folder / "fine")
    loaded.origin["questions"] = 0
    with pytest.raises(UserError, match="fine: isn't trained on questions"):
        loaded.with_history([("Ada", "Oslo")])
    several = ("--history", "chats.jsonl")
    refused(regard("ask", "fine", "Mia", *several), "chats.jsonl:2", "second")


def test_training_with_the_tokenizer_of_a_run(regard: Command, folder: Path, run: Path) -> None:
    fingerprint = Run.load(run).tokenizer.fingerprint
    for name, command in {
        "a": ("train", "questions", "pairs.tsv"),
        "b": ("pretrain", "text.txt"),
        "c": ("train", "text", "text.txt"),
    }.items():
        succeeded(regard(*command, "--out", name, "--tokenizer", "run", *MODEL, *STEPS))
        assert Run.load(folder / name).tokenizer.fingerprint == fingerprint


def test_a_tokenizer_is_trained_by_its_kind_and_size(regard: Command, folder: Path) -> None:
    flags = ("--out", "new", "--tokenizer", "byte-pairs:310")
    succeeded(regard("train", "text", "text.txt", *flags, *MODEL, *STEPS))
    loaded = Run.load(folder / "new")
    assert loaded.recipe.tokenizer == BytePairsConfig(size=310)
    assert loaded.tokenizer.size == 310


def test_a_sample_begins_like_the_text(regard: Command, folder: Path) -> None:
    (folder / "any.txt").write_text("abcdefghijklmnopqrstuvwxyz" * 8, encoding="utf-8")
    each_a_token = ("tokenizer.unknown=error", "data.validation=0")
    settings = (*MODEL, *STEPS, "model.context_length=64", *each_a_token)
    outcome = succeeded(regard("train", "text", "any.txt", "--out", "new", *settings))
    assert outcome.err.count("\nsample: ") == 1  # of the only checkpoint
    assert "ample:" not in outcome.out
    sample = outcome.err.partition("\nsample: ")[2].rstrip("\n")
    assert sample[:8] in "abcdefghijklmnopqrstuvwxyz" * 2
    assert re.fullmatch("[a-z⏎]{8,64}", sample), "special tokens are line ends"
    assert "weights: of the last step, 3; no validation loss is measured\n" in outcome.out


# evaluate


def test_evaluation_scores_answers_and_writes_a_report(
    regard: Command, folder: Path, run: Path
) -> None:
    flags = ("--predictions", "answers.txt", "--json", "figures.json")
    outcome = succeeded(regard("evaluate", "run", "pairs.tsv", *flags))
    assert sorted(outcome.new) == ["answers.txt", "figures.json", "run/report.html"]
    assert not outcome.changed
    answers = (folder / "answers.txt").read_text("utf-8").splitlines()
    assert len(answers) == len(PEOPLE)
    correct = sum(answer == place for answer, (_, place) in zip(answers, PEOPLE, strict=True))
    figures = read_json(folder / "figures.json")
    assert (figures["questions"], figures["correct"]) == (len(PEOPLE), correct)
    assert correct > 0  # the fixture has learned to answer
    assert figures["accuracy"] == pytest.approx(correct / len(PEOPLE))
    assert figures["low"] <= figures["accuracy"] <= figures["high"]
    assert f"of {len(PEOPLE)} questions" in outcome.out
    page = (run / "report.html").read_text("utf-8")
    assert all(question.text in page for question in QUESTIONS)
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)


def test_questions_without_answers_are_predicted_and_not_scored(
    regard: Command, folder: Path
) -> None:
    for name, flags in (("pairs", ()), ("inputs", ("--json", "figures.json"))):
        outcome = succeeded(
            regard("evaluate", "run", f"{name}.tsv", "--predictions", f"{name}.txt", *flags)
        )
    assert (folder / "inputs.txt").read_bytes() == (folder / "pairs.txt").read_bytes()
    figures = read_json(folder / "figures.json")
    assert figures["questions"] == len(PEOPLE) == sum(figures["verdicts"].values())
    assert set(figures) == {"questions", "verdicts"}
    assert f"{len(PEOPLE)} questions" in outcome.out.splitlines()
    assert "accuracy" not in outcome.out
    assert "report.html" in outcome.out


def test_every_answer_takes_one_line_of_the_predictions(folder: Path) -> None:
    answered = ["Rome", "", "New\nYork", " Rio \r\n de\u2028Janeiro\t"]
    save_predictions(answered, folder / "answers.txt")
    lines = (folder / "answers.txt").read_bytes().decode().splitlines()
    assert lines == ["Rome", "", "New York", "Rio de Janeiro"]


def test_other_wordings_are_asked_too(regard: Command, folder: Path) -> None:
    flags = ("--paraphrase", "Was {} born?", "--json", "figures.json")
    outcome = succeeded(regard("evaluate", "run", "pairs.tsv", *flags))
    assert "agreement" in outcome.out
    assert "agreement" in read_json(folder / "figures.json")["auroc"]


def test_a_text_is_scored_by_its_perplexity(regard: Command, folder: Path, run: Path) -> None:
    outcome = succeeded(regard("evaluate", "run", "text.txt", "--json", "figures.json"))
    loaded, losses, tokens = Run.load(run), 0.0, 0
    for text in BIOGRAPHIES:
        ids = torch.tensor([[MASK, *loaded.tokenizer.encode(text), MASK]])
        with torch.inference_mode():
            logits = loaded.model(ids[:, :-1])
        losses += F.cross_entropy(logits[0], ids[0, 1:], reduction="sum").item()
        tokens += ids.shape[1] - 1
    figures = read_json(folder / "figures.json")
    assert figures["tokens"] == tokens
    assert figures["perplexity"] == pytest.approx(math.exp(losses / tokens), rel=1e-4)
    bits = losses / math.log(2) / len("".join(BIOGRAPHIES))
    assert figures["bits_per_character"] == pytest.approx(bits, rel=1e-4)
    assert f"perplexity: {figures['perplexity']:.3f}" in outcome.out
    (folder / "texts").mkdir()
    shutil.copy(folder / "text.txt", folder / "texts")
    assert succeeded(regard("evaluate", "run", "texts")).out == outcome.out
    assert outcome.new == ["figures.json"]


def test_a_baseline_always_answers_the_same(regard: Command, folder: Path) -> None:
    for baseline, guess, correct in [
        ("majority", "Oslo", 4),
        ("Rome", "Rome", 4),
        ("Paris", "Paris", 0),
    ]:
        flags = ("--baseline", baseline, "--json", "figures.json")
        outcome = succeeded(regard("evaluate", "no-run-needed", "pairs.tsv", *flags))
        assert read_json(folder / "figures.json") == {
            "baseline": guess,
            "accuracy": correct / 8,
            "correct": correct,
            "questions": 8,
        }
        assert outcome.out.startswith(f"always {guess}: {correct}/8 = ")


# generate


def test_samples_are_those_of_the_library_in_the_order_of_the_prompts(
    regard: Command, run: Path
) -> None:
    sampling: dict[str, Any] = {"temperature": 5.0, "top_k": 9, "top_p": 0.5, "seed": 3}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in sampling.items()]
    command = ("generate", "run", "Ada", "Otto Lange", "--raw", "--max-new-tokens", 5, "--json")
    outcome = succeeded(regard(*command, "--num-return-sequences", 2, *flags))
    records = [json.loads(line) for line in outcome.out.splitlines()]
    rows = [(prompt, i) for prompt in ("Ada", "Otto Lange") for i in (0, 1)]
    assert [(record["prompt"], record["sample"]) for record in records] == rows

    def drawn(**chosen: Any) -> list[str]:
        prompts = [prompt for prompt, _ in rows]
        return api.generate(Run.load(run), prompts, raw=True, max_new_tokens=5, **chosen)

    found = [record["text"] for record in records]
    assert found == drawn(**sampling)
    for name in sampling:  # each option matters
        assert drawn(**{k: v for k, v in sampling.items() if k != name}) != found
    assert not outcome.new


@pytest.mark.parametrize("beams", [(), ("--num-beams", 2)])
def test_a_run_of_questions_answers_unless_raw(
    regard: Command, run: Path, beams: tuple[object, ...]
) -> None:
    question = QUESTIONS[0].text
    command = ("generate", "run", question, "--max-new-tokens", 4, *beams)
    (expected,) = api.answer(Run.load(run), [question])
    answered = succeeded(regard(*command)).out.removesuffix("\n")
    assert not answered.startswith(question)
    assert expected.answered.startswith(answered.strip()) or beams
    assert succeeded(regard(*command, "--raw")).out.startswith(question)


def test_prompts_may_come_from_the_input(regard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("--max-new-tokens", 5)
    named = succeeded(regard("generate", "run", "Ada", "Mia Bell", *command)).out
    for text in ("Ada\nMia Bell\n", "Ada\r\nMia Bell\r\n", "\ufeffAda\nMia Bell"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "cp1252"))
        assert succeeded(regard("generate", "run", "-", *command)).out == named
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Adaë".encode()), "cp1252"))
    refused(regard("generate", "run", "-"), "the vocabulary has no 'ë'")


@pytest.mark.parametrize("beams", [(), ("--num-beams", 2)])
def test_a_continuation_ends_before_the_stop(regard: Command, beams: tuple[object, ...]) -> None:
    command = ("generate", "run", "Ada Finch", "--max-new-tokens", 12, *beams)
    whole = succeeded(regard(*command)).out.rstrip("\n")
    stop = whole[-2:]
    cut = succeeded(regard(*command, "--stop-string", stop)).out.rstrip("\n")
    assert cut == whole[: whole.index(stop, len("Ada Finch"))]
    # A stop inside the prompt ends nothing.
    assert succeeded(regard(*command, "--stop-string", "Ada")).out.rstrip("\n") == whole


def test_beams_are_printed_from_the_best(regard: Command, run: Path) -> None:
    search = "--num-beams 3 --num-return-sequences 2 --length-penalty 0.6 --early-stopping true"
    command = ("generate", "run", "Ada", "Otto Lange", "--max-new-tokens", 5, *search.split())
    outcome = succeeded(regard(*command, "--json"))
    found = api.beam_search(
        Run.load(run),
        ["Ada", "Otto Lange"],
        num_beams=3,
        num_return_sequences=2,
        max_new_tokens=5,
        length_penalty=0.6,
        early_stopping=True,
    )
    assert [json.loads(line) for line in outcome.out.splitlines()] == [
        {"prompt": prompt, "beam": number, "score": beam.score, "text": beam.text}
        for prompt, best in zip(["Ada", "Otto Lange"], found, strict=True)
        for number, beam in enumerate(best)
    ]
    assert all(first.score > second.score for first, second in found)
    assert succeeded(regard(*command)).out.splitlines() == [b.text for row in found for b in row]


# data, config, info


def test_data_shows_pairs_as_the_model_sees_them(regard: Command) -> None:
    outcome = succeeded(regard("data", "pairs", "pairs.tsv", "--num-examples", 2))
    examples = outcome.out.split("\n\n")[:-1]
    assert len(examples) == 2
    for example, question in zip(examples, QUESTIONS, strict=False):
        hidden = "·" * (len(question.text) - 1)
        assert example.split("\n") == [
            f"x: {question.text}⁇{question.answer}",
            f"y: {hidden}⁇{question.answer}⁇",
        ]


def test_data_shows_corrupted_texts(regard: Command) -> None:
    outcome = succeeded(regard("data", "corruption", "text.txt", "--seed", 3))
    examples = outcome.out.split("\n\n")[:-1]
    assert len(examples) == 4
    for example, text in zip(examples, BIOGRAPHIES, strict=False):
        x, y = (line[3:] for line in example.split("\n"))
        assert x[1:] == y[:-1]
        prefix, suffix, span = (x[0] + y).split("⁇")
        assert text.startswith(prefix + span + suffix)
    assert regard("data", "corruption", "text.txt", "--seed", 3).out == outcome.out
    assert regard("data", "corruption", "text.txt", "--seed", 4).out != outcome.out


def test_data_shows_masked_texts(regard: Command) -> None:
    outcome = succeeded(regard("data", "masking", "text.txt", "--seed", "3"))
    examples = outcome.out.split("\n\n")[:-1]
    assert len(examples) == 4
    for example, text in zip(examples, BIOGRAPHIES, strict=False):
        x, y = (line[3:] for line in example.split("\n"))
        restored = "".join(a if b == "·" else b for a, b in zip(x, y, strict=True))
        assert restored == text
        assert "⁇" in x
        assert 0 < sum(b != "·" for b in y) <= round(0.15 * len(text)) + 1


def test_config_prints_a_recipe_that_can_be_given_back(regard: Command, folder: Path) -> None:
    for name in RECIPES:
        outcome = succeeded(regard("config", "--recipe", name, "training.batch=3"))
        expected = override(RECIPES[name], ["training.batch=3"])
        assert convert(tomllib.loads(outcome.out), Recipe, where="") == expected, name
    (folder / "mine.toml").write_text(outcome.out, encoding="utf-8")
    assert succeeded(regard("config", "--recipe", "mine.toml")).out == outcome.out
    assert succeeded(regard("config")).out == succeeded(regard("config", "--recipe", "default")).out


def test_info_tells_what_a_run_is(regard: Command, run: Path) -> None:
    outcome = succeeded(regard("info", "run"))
    loaded = Run.load(run)
    facts = dict(re.split(r": +", line, maxsplit=1) for line in outcome.out.splitlines())
    assert facts["model"] == f"decoder, {loaded.recipe.model.summary}"
    assert facts["parameters"] == f"{loaded.n_parameters:,}"
    assert loaded.tokenizer.fingerprint in facts["tokenizer"]
    assert facts["stage"] == "pretraining"
    assert facts["steps done"] == "60 of 60"
    assert facts["weights"] == "yes"
    # BUG: a run made of texts in memory lists each of them (and the demo each of its questions).
    assert facts["inputs"].count(",") <= 1
    assert not outcome.new
    assert not outcome.changed


# help


WITHOUT_TORCH = """
import sys
from regard.cli.main import run
for command in sys.argv[1:]:
    code = run(command.split())
    heavy = {'torch', 'matplotlib', 'scipy', 'tensorboard'} & set(sys.modules)
    if code or heavy:
        sys.exit(f'{command}: {code} {heavy}')
"""


def test_help_waits_for_no_heavy_library() -> None:
    commands = ["--help", "pretrain --help", "config", "--version"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *commands],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"{__version__}\n")


def test_a_terminal_without_unicode_is_no_reason_to_stop(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = io.BytesIO()
    terminal = io.TextIOWrapper(printed, "cp1252", write_through=True)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(gc, "set_threshold", lambda _: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main.main(["data", "pairs", "pairs.tsv"])
    assert ended.value.code == 0
    assert b"x: Where was Ada Finch born??Rome\ny: \xb7\xb7" in printed.getvalue()


def test_redirected_output_is_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, Python writes to a pipe in the encoding of the system."""
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, "cp1252", write_through=True))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(gc, "set_threshold", lambda _: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    with pytest.raises(SystemExit):
        main.main(["config", "--recipe", "demo"])
    assert "√d_model" in printed.getvalue().decode()
