"""Whatever a user gets wrong is told in one line, and nothing is left behind."""

import errno
import io
import json
import os
import shutil
import sys
from collections.abc import Sequence
from itertools import count, product
from pathlib import Path

import pytest

from combinations import each_once
from regard import files
from regard.config import override
from regard.runs.recipe import load_recipe, recipe_to_toml
from regard.text.tokenizer import Tokenizer
from tiny import BLOCK, MIXED, MODEL, STEPS, Command, refused

pytestmark = pytest.mark.usefixtures("run")

PRETRAIN = ("pretrain", "text.txt", "--out", "new", *MODEL, *STEPS)
FINETUNE = ("finetune", "pairs.tsv", "--from", "run", "--out", "new", *STEPS)
TRAIN = ("train", "questions", "pairs.tsv", "--out", "new", *MODEL, *STEPS)
GENERATE = ("generate", "run", "Ada", "--max-new-tokens", "5")
EVALUATE = ("evaluate", "run", "pairs.tsv")


def put(folder: Path, name: str, data: bytes | str) -> None:
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


# the command line itself


def test_a_wrong_command_is_explained(regard: Command) -> None:
    for arguments, says in [
        (["--nonsense"], "--nonsense"),
        (["pretrain", "text.txt"], "--out"),
        (["pretrain", "--out", "new"], "CORPUS"),
        (["pretrain", "--out", "new", "model.n_layers=1"], "file"),
        (["train", "poems", "text.txt", "--out", "new"], "questions, text, casing"),
        (["train", "text", "--out", "new", "model.n_layers=1"], "file"),
        (["train", "questions", "pairs.tsv", "pairs.tsv", "--out", "new"], "one file"),
        (["train", "text", "text.txt", "--tokenizer", "pairs:9", "--out", "new"], "byte-pairs:32"),
        (["train", "text", "text.txt", "--tokenizer", "byte-pairs:x", "--out", "new"], "size"),
        (["train", "text", "text.txt", "--tokenizer", "byte-pairs:9", "--out", "new"], "300"),
        (["train", "text", "text.txt", "--tokenizer", "words:900", "--out", "new"], "size"),
        (
            ["train", "text", "text.txt", "--tokenizer", "hf:none", "--out", "new"],
            "none: is no folder of a Hugging Face model: it doesn't exist",
        ),
        (["finetune", "pairs.tsv", "--out", "new"], "--from"),
        (["finetune", "pairs.tsv", "extra.tsv", "--from", "run", "--out", "new"], "extra.tsv"),
        (["evaluate", "run"], "run: has no task and no held-out text; name a file"),
        (["data", "poems", "text.txt"], "poems"),
        (["data", "pairs", "pairs.tsv", "--context-length", "7"], "--context-length"),
        (["data", "pairs", "pairs.tsv", "--num-examples", "0"], "--num-examples"),
        (["world", "people", "--out", "new"], "people"),
        (["config", "--seed", "3"], "--seed"),
    ]:
        refused(regard(*arguments), says)


def test_options_that_exclude_each_other_write_nothing(regard: Command, folder: Path) -> None:
    double = ("--precision", "float64", "training.param_dtype=bfloat16")
    refused(regard(*PRETRAIN, *double), "contradicts param_dtype=bfloat16")
    assert not (folder / "new").exists()


def test_only_training_runs_in_several_processes(
    regard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    refused(regard(*EVALUATE), "evaluate: runs in one process; start it without torchrun")


# runs that don't fit together


@pytest.mark.parametrize("command", [GENERATE, EVALUATE, ("evaluate", "run", "text.txt"), FINETUNE])
def test_another_runs_tokenizer_is_refused(
    regard: Command, run: Path, stranger: Path, command: Sequence[str]
) -> None:
    own = Tokenizer.load(run).fingerprint
    shutil.copy(stranger / "tokenizer.json", run)
    refused(regard(*command), own, Tokenizer.load(stranger).fingerprint, "tokenizer.json")


def test_truncated_or_missing_weights_are_refused(regard: Command, run: Path) -> None:
    data = (run / "model.safetensors").read_bytes()
    put(run, "model.safetensors", data[:-1])
    refused(regard(*GENERATE), "run/model.safetensors", "damaged")
    (run / "model.safetensors").unlink()
    refused(regard(*EVALUATE), "run", "--resume")


def test_a_configuration_of_another_size_is_refused(regard: Command, run: Path) -> None:
    recipe = override(load_recipe(run), ["model.d_model=32"])
    put(run, "config.toml", recipe_to_toml(recipe))
    refused(regard(*GENERATE), "run/model.safetensors", "config.toml")


def test_a_damaged_configuration_is_refused(regard: Command, run: Path) -> None:
    text = (run / "config.toml").read_text("utf-8")
    for before, after, says in (
        ("n_layers = 1", "n_layers = 1\nlayers = 2", "layers"),
        ("d_model = 16", "d_model = 15", "d_model"),
        ("[model]", "[model", "isn't TOML"),
        ('kind = "rotary"', 'kind = "alibi"', "model.positions: object contains unknown field"),
    ):
        assert before in text
        put(run, "config.toml", text.replace(before, after, 1))
        refused(regard("info", "run"), "run/config.toml", says)


@each_once(
    {
        ("name", "data"): list(
            product(
                ["config.toml", "tokenizer.json", "origin.json"], [b"\xff\xfe", b"]", b"3", None]
            )
        ),
        "command": [GENERATE, ("info", "run"), FINETUNE, EVALUATE, ("look", "run", "Ada")],
    }
)
def test_a_damaged_or_missing_file_of_a_run_is_named(
    regard: Command, run: Path, command: Sequence[str], name: str, data: bytes | None
) -> None:
    if data is None:
        (run / name).unlink()
    else:
        put(run, name, data)
    refused(regard(*command), f"run{'' if (name, data) == ('config.toml', None) else '/' + name}")


@each_once(
    {
        "where": ["nowhere", "text.txt", "."],
        "command": [
            "generate {} Ada",
            "evaluate {} pairs.tsv",
            "evaluate {} text.txt",
            "info {}",
            "finetune pairs.tsv --from {} --out new",
        ],
    }
)
def test_what_is_no_run_is_refused(regard: Command, command: str, where: str) -> None:
    refused(regard(*command.format(where).split()), where, "not a run folder")


def test_a_tokenizer_is_taken_from_runs_alone(regard: Command) -> None:
    refused(regard(*PRETRAIN, "--tokenizer", "nowhere"), "nowhere/tokenizer.json")


# texts


@each_once(
    {
        "command": [
            "pretrain FILE --out new",
            "train text FILE --out new",
            "data corruption FILE",
            "evaluate run FILE",
        ],
        ("data", "says"): [
            (None, "FILE: no such file"),
            (b"", "FILE: is empty"),
            (b"\n \r\n", "FILE: is empty"),
            (b"\xef\xbb\xbf", "FILE: is empty"),
            (b"fi\xc3\xa9\nAda \xff\n", "FILE:2: byte 0xff isn't UTF-8"),
        ],
    }
)
def test_a_bad_text_is_named(
    regard: Command, folder: Path, command: str, data: bytes | None, says: str
) -> None:
    if data is not None:
        put(folder, "bad.txt", data)
    refused(regard(*command.replace("FILE", "bad.txt").split()), says.replace("FILE", "bad.txt"))


def test_a_name_is_told_as_it_was_given(regard: Command) -> None:
    # BUG: two spaces are told as one.
    refused(
        regard("pretrain", "my  own text.txt", "--out", "new"), "my  own text.txt: no such file"
    )


def test_a_folder_without_texts_is_named(regard: Command, folder: Path) -> None:
    (folder / "data").mkdir()
    refused(regard("pretrain", "data", "--out", "new"), "data: has no text files")


def test_a_character_outside_the_vocabulary_is_named_by_its_line(
    regard: Command, folder: Path
) -> None:
    put(folder, "more.txt", "Ada was born.\n\nŁódź.\n")
    says = "more.txt:3: the vocabulary has no 'Ł'"
    flags = ("--tokenizer", "run", "--out", "new", *MODEL, *STEPS)
    refused(regard("pretrain", "more.txt", *flags), says)
    refused(regard("evaluate", "run", "more.txt"), says)


def test_a_word_outside_the_vocabulary_is_named_by_its_line(regard: Command, folder: Path) -> None:
    words = (*MODEL, *STEPS, "tokenizer.kind=words")
    assert regard("train", "questions", "pairs.tsv", "--out", "words", *words).code == 0
    put(folder, "more.tsv", "Where was Ada Finch born?\nWhere was Zoe Finch born?\n")
    refused(regard("evaluate", "words", "more.tsv"), "more.tsv:2: the vocabulary has no 'Zoe'")


@pytest.mark.parametrize("kind", ["characters", "words", "byte-pairs"])
def test_a_text_with_the_characters_of_special_tokens_is_learned(
    regard: Command, folder: Path, kind: str
) -> None:
    put(folder, "odd.txt", "Ada was born.\nBorn ⁇ in □ Rome <unknown>.\n")
    command = ("pretrain", "odd.txt", "--out", "new", *MODEL, *STEPS)
    assert regard(*command, f"tokenizer.kind={kind}").code == 0
    outcome = regard("generate", "new", "Born ⁇ in □", "--max-new-tokens", "1")
    assert outcome.code == 0
    assert outcome.out.startswith("Born ⁇ in □")


# questions


@each_once(
    {
        "command": [
            "pretrain text.txt --questions FILE --out new objective.questions=0.5",
            "finetune FILE --from run --out new",
            "train questions FILE --out new",
            "data pairs FILE",
            "evaluate run FILE",
        ],
        ("text", "says"): [
            (None, "bad.tsv: no such file"),
            ("", "bad.tsv: is empty"),
            ("Where was Ada?\tRome\nWhere was Mia? Oslo\n", "bad.tsv:2: has no answer"),
            ("Where was Ada?\t\n", "bad.tsv:1: the answer is empty"),
            ("Adé?\tRome\n".encode() + b"\xff?\tOslo\n", "bad.tsv:2: byte 0xff isn't UTF-8"),
        ],
    }
)
def test_bad_questions_are_named(
    regard: Command, folder: Path, command: str, text: str | bytes | None, says: str
) -> None:
    if text is not None:
        put(folder, "bad.tsv", text)
    refused(regard(*command.replace("FILE", "bad.tsv").split()), says)


def test_questions_without_answers_are_no_use_where_answers_are_needed(regard: Command) -> None:
    for command in [
        "pretrain text.txt --questions inputs.tsv --out new objective.questions=0.5",
        "finetune inputs.tsv --from run --out new",
        "train questions inputs.tsv --out new",
        "data pairs inputs.tsv",
        "evaluate run inputs.tsv --baseline Rome",
        "evaluate run inputs.tsv --baseline majority",
    ]:
        refused(regard(*command.split()), "inputs.tsv:1: ")


LONG = "Where was Ada Finch " + "Ada " * 12 + "born?"


def test_a_question_longer_than_the_block_is_named(regard: Command, folder: Path) -> None:
    put(folder, "long.tsv", f"Where was Ada Finch born?\tRome\n{LONG}\tRome\n")
    refused(regard("evaluate", "run", "long.tsv"), "long.tsv:2: ", f"context length is {BLOCK}")
    train = ("train", "questions", "long.tsv", "--out", "new", *MODEL, *STEPS)
    refused(regard(*train), "long.tsv:2: ")
    refused(regard("data", "pairs", "long.tsv", "--context-length", BLOCK), "long.tsv:2: ")


def test_questions_need_a_share_and_a_share_needs_questions(regard: Command) -> None:
    refused(regard(*PRETRAIN, "--questions", "pairs.tsv"), "objective.questions")
    refused(regard(*PRETRAIN, *MIXED), "--questions")


def test_a_wording_without_a_place_for_the_subject_is_refused(regard: Command) -> None:
    for wording in ["{name}?", "{", "{0}?", "Where?"]:
        refused(regard(*EVALUATE, "--paraphrase", wording), repr(wording))
    refused(regard(*EVALUATE, "--paraphrase", "{} ✈?"), "✈")


# recipes and settings


@each_once(
    {
        "name": ["nonsense", "nowhere.toml", ".", "text.txt"],
        "command": [PRETRAIN, FINETUNE, TRAIN, ("config",)],
    }
)
def test_an_unknown_recipe_is_named(regard: Command, command: Sequence[str], name: str) -> None:
    refused(regard(*command, "--recipe", name), name)


def test_a_bad_setting_is_named(regard: Command) -> None:
    for setting, says in [
        ("model.layers=2", "model.layers"),
        ("model.context_length=7", "model.context_length"),
        ("tokenizer.kind=letters", "allowed: characters, words, byte-pairs"),
        ("data.validation=nan", "data.validation"),
        ("objective.next_token=inf", "objective.next_token"),
        ("objective.next_token=0", "above 0"),
        ("training.steps=none", "either epochs or steps"),
        ("seed=99999999999999999999", "seed"),
        ("text.tsx", "text.tsx"),
    ]:
        refused(regard(*PRETRAIN, setting), says)


@each_once(
    {
        "command": [PRETRAIN, FINETUNE, TRAIN, GENERATE, ("demo", "--out", "new")],
        "seed": ["-1", "1.5", "99999999999999999999"],
    }
)
def test_a_bad_seed_is_refused(regard: Command, command: Sequence[str], seed: str) -> None:
    refused(regard(*command, "--seed", seed), "--seed")


def test_finetuning_cannot_change_what_is_made(regard: Command) -> None:
    for setting in ("model.n_layers=2", "tokenizer.kind=words"):
        refused(regard(*FINETUNE, setting), "can't be changed")


@pytest.mark.parametrize(
    "settings",
    [
        ("objective.span_corruption=0.5",),
        ("objective.questions=0.5", "--questions", "pairs.tsv"),
    ],
)
def test_an_objective_that_windows_cannot_serve_is_refused(
    regard: Command, settings: Sequence[str]
) -> None:
    refused(regard(*PRETRAIN, "data.documents=files", *settings), "data.documents")


def test_the_smallest_block_serves_every_objective(regard: Command, folder: Path) -> None:
    put(folder, "short.tsv", "A?\tB\n")
    settings = ("model.context_length=8", "objective.span_corruption=0.5", *MIXED)
    assert regard(*PRETRAIN, *settings, "--questions", "short.tsv").code == 0


def test_bad_files_of_a_text_are_named_before_training_or_left_out(
    regard: Command, folder: Path
) -> None:
    (folder / "texts").mkdir()
    put(folder, "texts/a.txt", "")
    put(folder, "texts/b.txt", "Ada was born in Oslo.\n" * 20)
    put(folder, "texts/c.txt.gz", "damaged")
    command = ("train", "text", "texts", "--out", "new", *MODEL, *STEPS)
    refused(regard(*command), "texts/a.txt: is empty", "texts/c.txt.gz", "--skip-bad")
    with pytest.warns(UserWarning, match=r"left out: texts/a\.txt.*texts/c\.txt\.gz"):
        outcome = regard(*command, "--skip-bad")
    assert outcome.code == 0
    assert "files: 1\n" in outcome.out


def test_a_text_of_one_character_is_too_short_for_windows(regard: Command, folder: Path) -> None:
    put(folder, "a.txt", "a")
    refused(regard("train", "text", "a.txt", "--out", "new"), "a.txt: is too short")


def test_a_text_shorter_than_the_context_is_trained_with_a_warning(
    regard: Command, folder: Path
) -> None:
    put(folder, "abc.txt", "abc")
    says = f"the text has 3 training tokens, fewer than model.context_length={BLOCK}; "
    with pytest.warns(UserWarning, match=says):
        assert regard("train", "text", "abc.txt", "--out", "new", *MODEL, *STEPS).code == 0


def test_a_bad_setting_of_the_world_is_named(regard: Command) -> None:
    for setting, says in [
        ("people=5", "80..5600"),
        ("nonsense=1", "allowed"),
    ]:
        outcome = regard("world", "--out", "new", setting)
        refused(
            outcome,
            setting.partition("=")[0],
            says.replace("allowed", "there are: absent, augment"),
        )


# places to write to


@each_once(
    {
        "command": [
            PRETRAIN,
            FINETUNE,
            TRAIN,
            ("world", "--out", "new"),
            ("train", "text", "text.txt"),
        ],
        "out": ["text.txt", "text.txt/new", "text.txt/deep/new", "full"],
    }
)
def test_an_out_that_cannot_be_made_is_named(
    regard: Command, folder: Path, command: Sequence[str], out: str
) -> None:
    (folder / "full").mkdir()
    put(folder / "full", "mine.txt", "mine")
    refused(regard(*command, "--out", out), out)


@pytest.mark.parametrize(
    "command",
    [
        "pretrain nowhere.txt --out run",
        "train text nowhere.txt --out run",
        "train questions nowhere.tsv --out run",
        "train classification nowhere.tsv --out full",
        "finetune nowhere.tsv --from nowhere --out full",
        "convert nowhere --out run",
        "export-hf nowhere --out full",
        "import-hf nowhere --out full",
        "pack nowhere.txt --out full",
        "index nowhere.txt --out text.txt",
        "book --only nowhere --out text.txt",
        "study run nowhere --out text.txt",
        "look nowhere Ada --out full",
        "head-scores nowhere Ada --out full",
        "birthplaces --data nowhere --out text.txt",
    ],
)
def test_a_place_that_is_taken_is_named_before_anything_is_read(
    regard: Command, folder: Path, command: str
) -> None:
    (folder / "full").mkdir()
    put(folder / "full", "mine.txt", "mine")
    refused(regard(*command.split()), command.split()[-1])
    assert "nowhere" not in regard(*command.split()).err


def test_a_run_is_resumed_with_its_own_recipe_only(regard: Command) -> None:
    refused(regard(*PRETRAIN, "--out", "run", "--resume", "seed=9"), "another recipe")


@each_once(
    {
        "place": ["text.txt/x", "full", "nowhere/x", ".", "text.txt/deep/x"],
        "command": [
            (*PRETRAIN, "--json"),
            (*PRETRAIN, "--dry-run", "--json"),
            (*FINETUNE, "--json"),
            (*TRAIN, "--json"),
            (*EVALUATE, "--json"),
            (*EVALUATE, "--predictions"),
            (*EVALUATE, "--baseline", "majority", "--json"),
            ("evaluate", "run", "text.txt", "--json"),
            ("demo", "--out", "new", "training.steps=1", "--json"),
        ],
    }
)
def test_a_file_that_cannot_be_written_is_named_before_the_work(
    regard: Command, folder: Path, command: Sequence[str], place: str
) -> None:
    (folder / "full").mkdir()
    outcome = regard(*command, place)
    refused(outcome, place, "can't be written")
    assert "accuracy" not in outcome.out


def test_a_name_too_long_is_the_users_mistake(regard: Command) -> None:
    refused(regard("world", "--out", "x" * 300), "x" * 300)


def test_a_report_that_cannot_be_written_is_named(regard: Command, run: Path) -> None:
    (run / "report.html").mkdir()
    refused(regard(*EVALUATE), "run/report.html: can't be written")


# prompts and sampling


def test_a_bad_prompt_is_named(regard: Command) -> None:
    for prompts, says in [
        ([], "no prompt"),
        ([""], "prompt 1: is empty"),
        (["Ada", ""], "prompt 2: is empty"),
        (["Ada" * BLOCK], f"context length of {BLOCK}"),
        (["Łódź"], "'Ł'"),
        (["Ada", "Ada⁇"], "prompt 2: "),
        (["Ada \udcff"], "prompt 1: "),
    ]:
        refused(regard("generate", "run", *prompts, "--max-new-tokens", 5), says)


@pytest.mark.parametrize("setting", ["tokenizer.unknown=bytes", "tokenizer.unknown=unk"])
def test_unknown_characters_of_prompts_are_named_once(regard: Command, setting: str) -> None:
    assert regard(*PRETRAIN, setting).code == 0
    with pytest.warns(UserWarning, match="the tokenizer of new has no 'Ł', 'ź'; ") as warned:
        assert regard("generate", "new", "Ł and ź", "Ł", "--max-new-tokens", 2).code == 0
    assert len(warned) == 1


def test_an_input_without_prompts_is_refused(
    regard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ["", "\n", "Ada\n\nMia\n"]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        refused(regard("generate", "run", "-", "--max-new-tokens", 5), "prompt")


def test_an_input_that_is_no_text_is_refused(
    regard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Ada\xff\n"), "utf-8"))
    refused(regard("generate", "run", "-", "--max-new-tokens", 5))


def test_bytes_that_are_no_text_are_refused_by_byte_pairs_too(regard: Command) -> None:
    settings = ("tokenizer.kind=byte-pairs", "tokenizer.size=300")
    assert regard(*PRETRAIN, *settings).code == 0
    refused(regard("generate", "new", "Ada \udcff", "--max-new-tokens", 5), "prompt 1: ")


def test_bad_sampling_is_refused(regard: Command) -> None:
    for flag, value in [
        ("--temperature", "nan"),
        ("--temperature", "warm"),
        ("--top-k", "0"),
        ("--top-p", "1.1"),
        ("--num-return-sequences", "0"),
        ("--max-new-tokens", "0"),
        ("--precision", "float16"),
        ("--threads", "0"),
    ]:
        refused(regard(*GENERATE, flag, value), flag.removeprefix("--").split("-")[0])


def test_beams_are_not_sampled(regard: Command) -> None:
    for flag, value in [("--temperature", "0"), ("--top-k", "3"), ("--top-p", "0.9")]:
        refused(regard(*GENERATE, "--num-beams", 2, flag, value), flag, "--num-beams")


def test_flags_of_beams_need_beams(regard: Command) -> None:
    for flag, value in [("--length-penalty", "1"), ("--early-stopping", "never")]:
        refused(regard(*GENERATE, flag, value), flag, "add --num-beams")


def test_bad_beams_are_refused(regard: Command) -> None:
    for flags, says in [
        (["--num-beams", "0"], "--num-beams"),
        (["--num-beams", "2", "--num-return-sequences", "0"], "--num-return-sequences"),
        (
            ["--num-beams", "2", "--num-return-sequences", "3"],
            "can't return 3 of 2 beams; choose 1 to 2",
        ),
        (["--num-beams", "2", "--length-penalty", "nan"], "length penalty"),
        (["--num-beams", "2", "--early-stopping", "soon"], "--early-stopping"),
    ]:
        refused(regard(*GENERATE, *flags), says)


def test_more_tokens_than_the_block_holds_are_refused(regard: Command) -> None:
    # The first of the text is ⁇, the last new one is never read.
    room = BLOCK - len("⁇Ada") + 1
    command = ("generate", "run", "Ada", "--raw", "--max-new-tokens")
    assert regard(*command, room).code == 0
    refused(regard(*command, room + 1), f"context length of {BLOCK}")


# machines


@each_once(
    {
        "command": [PRETRAIN, FINETUNE, TRAIN, GENERATE, EVALUATE],
        "device": ["cuda:99", "abacus", "meta", ""],
    }
)
def test_a_device_that_is_not_there_is_named(
    regard: Command, command: Sequence[str], device: str
) -> None:
    refused(regard(*command, "--device", device), f"--device {device}: ")


# full disks


def fill_disk(monkeypatch: pytest.MonkeyPatch, after: int = 0) -> None:
    """The disk is full after so many files; what fits of the next one stays."""
    numbers, write = count(), files._write

    def torn(path: Path, data: bytes) -> None:
        if next(numbers) < after:
            return write(path, data)
        write(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(files, "_write", torn)


FILLED: dict[str, tuple[str, ...]] = {
    "world": ("world", "--out", "new", "people=80"),
    "pretrain": PRETRAIN,
    "finetune": FINETUNE,
    "train": TRAIN,
    "dry run": (*PRETRAIN, "--dry-run", "--json", "facts.json"),
    "report": EVALUATE,
    "predictions": (*EVALUATE, "--predictions", "answers.txt"),
    "figures": (*EVALUATE, "--json", "figures.json"),
    "baseline": (*EVALUATE, "--baseline", "majority", "--json", "figures.json"),
    "perplexity": ("evaluate", "run", "text.txt", "--json", "figures.json"),
}


@pytest.mark.parametrize("name", FILLED)
def test_a_full_disk_is_told_and_no_file_is_half_written(
    regard: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Once there is room, the command works."""
    with monkeypatch.context() as full:
        fill_disk(full)
        outcome = regard(*FILLED[name])
    assert outcome.code == 1
    (line,) = outcome.err.splitlines()
    assert line.startswith("regard: ")
    assert "disk is full" in line
    assert set(outcome.new) <= {"new"}  # the empty folder of a run
    assert not outcome.changed
    assert regard(*FILLED[name]).code == 0


@pytest.mark.parametrize(
    "after",
    [0, 3, 6, 8, *(pytest.param(write, marks=pytest.mark.slow) for write in (1, 2, 4, 5, 7))],
)
def test_training_goes_on_where_the_full_disk_stopped_it(
    regard: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    command = (*PRETRAIN, "training.checkpoint_every=2")
    assert regard(*command, "--out", "undisturbed").code == 0
    with monkeypatch.context() as full:
        fill_disk(full, after)
        outcome = regard(*command)
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1].startswith("regard: ")
    assert "Traceback" not in outcome.err
    assert regard(*command, "--resume").code == 0
    for name in ("model.safetensors", "config.toml", "tokenizer.json"):
        assert (folder / "new" / name).read_bytes() == (folder / "undisturbed" / name).read_bytes()
    lines = (folder / "new/metrics.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3]


def test_a_full_disk_at_a_line_of_metrics_is_told(
    regard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _line: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("regard.training.loggers.append_line", full)
    outcome = regard(*PRETRAIN)
    assert outcome.code == 1
    assert "disk is full" in outcome.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EDQUOT, 1),
        (errno.EIO, 1),
        (errno.EACCES, 2),
        (errno.EROFS, 2),
        (errno.ENOTEMPTY, 2),
    ],
)
def test_failures_of_the_system_are_told_in_one_line(
    regard: Command, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    def fail(path: Path, _data: bytes) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(files, "_write", fail)
    outcome = regard("world", "--out", "new", "people=80")
    refused(outcome, "new", code=code)


def test_ctrl_c_is_told_in_one_line(regard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_path: Path, _data: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "_write", interrupt)
    outcome = regard("world", "--out", "new", "people=80")
    assert outcome.code == 130
    assert outcome.err.strip() == "regard: stopped"


def test_a_good_run_is_not_refused(regard: Command) -> None:
    """The commands above fail for the reason that each test gives."""
    for command in (GENERATE, EVALUATE, FINETUNE, ("info", "run"), (*PRETRAIN[:3], "b", *MODEL)):
        assert regard(*command, *(STEPS if command[0] == "pretrain" else ())).code == 0
