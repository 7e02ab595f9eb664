"""Whatever a user gets wrong is told in one line, and nothing is left behind.

What each loader refuses, and in which words, is tested beside it; here, that commands say it.
"""

import errno
import io
import json
import os
import shlex
import shutil
import sys
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest

from regard import files
from tiny import BLOCK, MIXED, MODEL, STEPS, Command, refused, succeeded

pytestmark = pytest.mark.usefixtures("run")

SMALL = " ".join((*MODEL, *STEPS))
PRETRAIN = "pretrain text.txt --out new"
FINETUNE = "finetune pairs.tsv --from run --out new"
QUESTIONS = "train questions pairs.tsv --out new"
TEXT = "train text text.txt --out new"
GENERATE = "generate run Ada --max-new-tokens 5"
EVALUATE = "evaluate run pairs.tsv"

MISTAKES = {
    "regard": [
        ("--nonsense", "--nonsense"),
        ("world people --out new", "people"),
        ("world --out new people=5", "80..5600"),
        (f"world --out {'x' * 300}", "x" * 300),
        ("config --seed 3", "--seed"),
        ("config --recipe ''", "--recipe': is empty; give a value"),
        ("tasks casing", "casing"),
    ],
    "data": [
        ("data poems text.txt", "poems"),
        ("data pairs pairs.tsv --context-length 7", "--context-length"),
        ("data pairs pairs.tsv --num-examples 0", "--num-examples"),
        ("data pairs inputs.tsv", "inputs.tsv:1: "),
    ],
    "pretrain": [
        ("pretrain text.txt", "--out"),
        ("pretrain --out new", "CORPUS"),
        ("pretrain --out new model.n_layers=1", "file"),
        ("pretrain 'my  own text.txt' --out new", "my  own text.txt: no such file"),
        (f"{PRETRAIN} --tokenizer nowhere", "nowhere/tokenizer.json"),
        (f"{PRETRAIN} --questions pairs.tsv", "objective.questions"),
        (f"{PRETRAIN} {' '.join(MIXED)}", "--questions"),
        (f"{PRETRAIN} --recipe nonsense", "nonsense"),
        (f"{PRETRAIN} --seed -1", "--seed"),
        (f"{PRETRAIN} --device cuda:99", "--device cuda:99: "),
        (f"{PRETRAIN} --mix a=1", "--mix: is for packed corpora"),
        (f"{PRETRAIN} pretraining.steps=3", "training?"),
        (f"{PRETRAIN} model.norm=layer", "model.norm: invalid value 'layer'; allowed: pre, post"),
        (f"{PRETRAIN} model.attention.kind=None.py:X", "kind: None.py: no such file"),
        (f"{PRETRAIN} data.documents=files objective.span_corruption=0.5", "data.documents"),
        (
            f"{PRETRAIN} {SMALL} --precision float64 training.param_dtype=bfloat16",
            "contradicts param_dtype=bfloat16",
        ),
        (f"pretrain text.txt --out run --resume {SMALL} seed=9", "another recipe"),
        (f"{PRETRAIN} --json nowhere/x", "nowhere/x: can't be written"),
        (f"{PRETRAIN} --dry-run --json full", "full: can't be written"),
        ("pretrain text.txt --out text.txt/deep/new", "text.txt/deep/new"),
    ],
    "finetune": [
        ("finetune pairs.tsv --out new", "--from"),
        ("finetune pairs.tsv --from text.txt --out new", "text.txt: is not a run folder"),
        ("finetune inputs.tsv --from run --out new", "inputs.tsv:1: "),
        (f"{FINETUNE} --device meta", "--device meta: "),
    ],
    "train": [
        ("train", "Missing argument 'TASK'; see regard train --help"),
        ("train poems text.txt --out new", "questions, text, casing"),
        ("train text --out new model.n_layers=1", "file"),
        ("train text a.txt --out new", "a.txt: is too short"),
        (f"{TEXT} --json text.txt", "text.txt: is named twice"),
        ("train questions pairs.tsv pairs.tsv --out new", "one file"),
        ("train questions bad.tsv --out new", "bad.tsv:2: has no answer"),
        (f"{QUESTIONS} --recipe nowhere.toml", "nowhere.toml"),
        (f"{QUESTIONS} --recipe {'x' * 300}", "no such recipe or file"),
        (f"{QUESTIONS} data.{'x' * 300}=1", "no such field"),
        (f"{QUESTIONS} --tokenizer words:50", "--tokenizer words:50: takes no such size"),
        (f"{TEXT} --tokenizer pairs:9", "byte-pairs:32"),
        (f"{TEXT} --tokenizer byte-pairs:x", "size"),
        (f"{TEXT} --tokenizer hf:none", "none: is no folder of a Hugging Face model: it doesn't"),
        (f"{QUESTIONS} --device abacus", "--device abacus: "),
        (f"{TEXT} --device abacus", "--device abacus: "),
        (f"{TEXT} --device gpu", "can't be used here: choose auto, cpu, cuda or"),
        (f"{TEXT} --device cuda:999", "can't be used here: choose auto, cpu, cuda or"),
        ("train text '' --out new", "a file's name is empty"),
        ("train text text.txt --out new\udcff", "new?: its name isn't valid UTF-8"),
        ("pretrain text.txt --out ''", "--out': is empty; name a file or folder"),
        ("generate '' Ada", "RUN': is empty; name a file or folder"),
        (f"{TEXT} model.n_layers = 1", "write section.field=value without spaces"),
        (f"{TEXT} objective.clozes=1", "text is read in windows, for objective.next_token alone"),
        (f"{QUESTIONS} --from ''", "--from': is empty; give a value"),
        (f"{QUESTIONS} --recipe ''", "--recipe': is empty; give a value"),
        (f"{QUESTIONS} --tokenizer ''", "--tokenizer': is empty; give a value"),
        (f"{QUESTIONS} --from nowhere", "give a run folder or, for a Hugging Face model"),
        (f"{QUESTIONS} --from run training.lora.rank=999", "training.lora.rank=999: exceeds"),
        (f"{QUESTIONS} --steps +2", "--from RUN"),
        (f"{QUESTIONS} --from run --steps 2000", "--steps 2000: expected"),
        (f"{QUESTIONS} --from run --steps +0", "--steps +0: expected"),
        (f"{QUESTIONS} --from run --steps +2 --recipe demo", "leave --recipe out"),
        (f"{QUESTIONS} --from run --steps +2 --out run", "run: holds a run; choose another"),
        (f"{QUESTIONS} --from run --steps +2 --out run --resume", "--out run: is the run to cont"),
    ],
    "evaluate": [
        ("evaluate run", "run: has no task and no held-out text; name a file"),
        ("evaluate nowhere pairs.tsv", "nowhere: is not a run folder"),
        ("evaluate run more.txt", "more.txt:3: the vocabulary has no 'Ł'"),
        ("evaluate run inputs.tsv --baseline majority", "inputs.tsv:1: "),
        ("evaluate run pairs.tsv --baseline majority --seed 1", "not with --baseline"),
        ("evaluate run text.txt --seed 1", "--seed: need questions, not a text"),
        (f"{EVALUATE} --paraphrase {{name}}?", "'{name}?'"),
        (f"{EVALUATE} --paraphrase Where?", "'Where?'"),
        (f"{EVALUATE} --paraphrase '{{}} ✈?'", "✈"),
        (f"{EVALUATE} --predictions full", "full: can't be written"),
        (f"{EVALUATE} --predictions ./pairs.tsv", "pairs.tsv: is named twice"),
        (f"{EVALUATE} --json pairs.tsv --baseline Rome", "pairs.tsv: is named twice"),
        ("evaluate run text.txt --json nowhere/x", "nowhere/x: can't be written"),
        (f"{EVALUATE} --device ''", "--device : "),
    ],
    "generate": [
        ("generate run", "no prompt"),
        ("generate run Ada Ada⁇", "prompt 2: "),
        ("generate run 'Ada \udcff'", "prompt 1: "),
        ("generate text.txt Ada", "text.txt: is not a run folder"),
        (f"{GENERATE} --top-k 0", "top"),
        (f"{GENERATE} --max-new-tokens 0", "max-new-tokens"),
        (f"{GENERATE} --precision float16", "precision"),
        (f"{GENERATE} --num-beams 2 --top-p 0.9", "--top-p is for sampling, and --num-beams"),
        (f"{GENERATE} --num-beams 2 --seed 3", "--seed is for sampling, and --num-beams"),
        (f"{GENERATE} --top-k 5", "--top-k is for sampling; add --temperature"),
        (f"{GENERATE} --length-penalty 1", "--length-penalty is for beam search; add --num-beams"),
        (f"{GENERATE} --early-stopping never", "--early-stopping is for beam search"),
        (f"{GENERATE} --num-beams 2 --early-stopping soon", "--early-stopping"),
    ],
    "ask and calibrate": [
        ("ask run 'Where was Mia Bell born?' ' '", "question 2 is empty"),
        ("ask run Who? --index text.txt", "not a corpus index"),
        ("calibrate run pairs.tsv --max-error 0%", "percentage"),
        ("calibrate run pairs.tsv --max-error many", "percentage"),
        ("calibrate run pairs.tsv --max-error 20", "'--max-error': 20: expected a percentage"),
        ("calibrate nowhere pairs.tsv --max-error 20%", "nowhere"),
        ("calibrate run pairs.tsv --max-error 20% --paraphrase Who?", "{}"),
    ],
    "index and find": [
        ("find a.index ''", "TEXT is empty"),
        ("find nowhere x", "nowhere: can't be read: No such file"),
        ("find text.txt x", "text.txt: is not a corpus index"),
        ("find a.index x --count --longest", "--count and --longest exclude each other"),
        ("find a.index x --max-count 0", "--max-count"),
        ("find a.index", "Missing argument 'TEXT'"),
        ("find a.index x --json a.index", "a.index: is named twice"),
        ("index --out b", "Missing argument 'CORPUS...'"),
        ("index text.txt", "Missing option '--out'"),
        ("index nowhere --out b", "nowhere: no such file"),
        ("index text.txt --out no/b", "can't be written"),
        ("index text.txt --out=./text.txt", "text.txt: is named twice"),
        ("index text.txt --out b --documents line", "did you mean lines?"),
        ("index text.txt --out b --documents records", "choose lines, paragraphs or files"),
    ],
    "look and head-scores": [
        ("look run Ada --layers 9", "layers of self-attention, numbered from 0, not 9"),
        ("look run Ada --heads 2-x", "--heads 2-x: is not a list of numbers"),
        ("look run Ada --detail 9.1", "--detail 9.1: no such head on the page; choose one such"),
        ("look run Ada --heads 1 --detail 0.0", "0.0: no such head on the page; choose one such"),
        ("look run Ada --out nowhere/x.html", "can't be written"),
        ("look run Ada --out x.pdf", "choose a name with .html, .png or .svg"),
        ("look run Ada --word Ada", "--word Ada: needs two panels"),
        ("look '' Ada", "is empty; give a value"),
        ("look run Ada --compare ''", "--compare': is empty; give a value"),
        ("look run Ada --compare-text ''", "--compare-text': is empty; give a value"),
        ("look gpt2 text", "for a Hugging Face model, write hf:gpt2"),
        (f"head-scores run {'Ł' * 200}", "the vocabulary has no 'Ł'"),
        ("head-scores run --gradients", "--gradients: needs TEXTS"),
        ("head-scores run --out x.bmp", "choose a name with .png or .svg"),
    ],
    "attention": [
        ("attention check softmaxx", "no such mechanism; there are: softmax"),
        ("attention check none.py:X", "none.py: no such file"),
    ],
    "import-hf and export-hf": [
        ("import-hf --out new", "FOLDER"),
        ("import-hf run", "--out"),
        ("import-hf nowhere --out new", "it doesn't exist"),
        ("export-hf nowhere --out new", "nowhere"),
        ("export-hf run --out full", "full: exists"),
        ("export-hf run --out new --family gpt2", "run: isn't like gpt2: "),
        ("export-hf run --out new --family gpt3", "--family gpt3: no such family; there are: gpt2"),
    ],
    "convert": [
        ("convert run --out run model.attention.kind=elu", "exists"),
        ("convert nowhere --out new model.attention.kind=elu", "nowhere"),
        ("convert run --out new model.attention.kind=elu --text gone.txt", "gone.txt"),
        (
            "convert run --out new model.attention.kind=elu --steps 2",
            "run: has no tokens of a text to train on; leave --steps out",
        ),
    ],
    "pack": [
        ("pack --out new", "CORPUS"),
        ("pack text.txt", "--out"),
        ("pack none.txt --out new", "none.txt: no such file"),
        ("pack text.txt --out pairs.tsv", "pairs.tsv: exists and holds something else"),
        ("pack text.txt --out new --jobs 0", "--jobs"),
        ("pack text.txt --out new --documents records", "text.txt:1"),
    ],
    "exercises": [
        ("exercises new", "Missing argument 'DIR'"),
        ("exercises new new --course eecs182-disk8", "did you mean eecs182-disc8?"),
        ("exercises new new --seed -1", "--seed"),
        ("exercises new full", "full: exists; choose another folder, or remove it"),
        ("exercises check nowhere", "nowhere: no such folder; write one with `regard exercises"),
        ("exercises check .", ".: has no notebook of exercises; one of jhu-hw5.ipynb, "),
        ("exercises check . --time-limit 0", "--time-limit"),
        ("exercises check . --results nowhere/results.json", "can't be written"),
        ("exercises key nowhere", "nowhere: no such folder"),
        ("exercises chek nowhere", "did you mean check?"),
    ],
}
"""Commands, and a part of the line that each prints."""


def put(folder: Path, name: str, data: bytes | str) -> None:
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_explained(regard: Command, folder: Path, run: Path, command: str) -> None:
    (folder / "full").mkdir()
    put(folder, "full/mine.txt", "mine")
    put(folder, "a.txt", "a")
    put(folder, "more.txt", "Ada was born.\n\nŁódź.\n")
    put(folder, "bad.tsv", "Where was Ada?\tRome\nWhere was Mia? Oslo\n")
    shutil.copy(run / "corpus.index", folder / "a.index")
    for arguments, says in MISTAKES[command]:
        outcome = regard(*shlex.split(arguments))
        refused(outcome, says)
        assert "accuracy" not in outcome.out, "a mistake is found before the work"


TAKEN = (
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
)


def test_a_place_that_is_taken_is_named_before_anything_is_read(
    regard: Command, folder: Path
) -> None:
    (folder / "full").mkdir()
    put(folder, "full/mine.txt", "mine")
    for command in TAKEN:
        outcome = regard(*command.split())
        refused(outcome, command.split()[-1])
        assert "nowhere" not in outcome.err, command


def test_only_training_runs_in_several_processes(
    regard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    says = "evaluate: runs in one process; start it without torchrun"
    refused(regard(*EVALUATE.split()), says)


# texts and prompts


@pytest.mark.parametrize("kind", ["characters", "words", "byte-pairs"])
def test_a_text_with_the_characters_of_special_tokens_is_learned(
    regard: Command, folder: Path, kind: str
) -> None:
    put(folder, "odd.txt", "Ada was born.\nBorn ⁇ in □ Rome <unknown>.\n")
    succeeded(
        regard("pretrain", "odd.txt", "--out", "new", *SMALL.split(), f"tokenizer.kind={kind}")
    )
    outcome = succeeded(regard("generate", "new", "Born ⁇ in □", "--max-new-tokens", "1"))
    assert outcome.out.startswith("Born ⁇ in □")


def test_the_smallest_block_serves_every_objective(regard: Command, folder: Path) -> None:
    put(folder, "short.tsv", "A?\tB\n")
    settings = ("model.context_length=8", "objective.span_corruption=0.5", *MIXED)
    command = (*PRETRAIN.split(), *SMALL.split(), *settings, "--questions", "short.tsv")
    succeeded(regard(*command))


def test_bad_files_of_a_text_are_named_before_training_or_left_out(
    regard: Command, folder: Path
) -> None:
    (folder / "texts").mkdir()
    put(folder, "texts/a.txt", "")
    put(folder, "texts/b.txt", "Ada was born in Oslo.\n" * 20)
    put(folder, "texts/c.txt.gz", "damaged")
    command = ("train", "text", "texts", "--out", "new", *SMALL.split())
    refused(regard(*command), "texts/a.txt: is empty", "texts/c.txt.gz", "--skip-bad")
    with pytest.warns(UserWarning, match=r"left out: texts/a\.txt.*texts/c\.txt\.gz"):
        outcome = succeeded(regard(*command, "--skip-bad"))
    assert "files: 1\n" in outcome.out


def test_a_text_shorter_than_the_context_is_trained_with_a_warning(
    regard: Command, folder: Path
) -> None:
    put(folder, "abc.txt", "abc")
    says = f"the text has 3 training tokens, fewer than model.context_length={BLOCK}; "
    with pytest.warns(UserWarning, match=says):
        succeeded(regard("train", "text", "abc.txt", "--out", "new", *SMALL.split()))


@pytest.mark.parametrize("setting", ["tokenizer.unknown=bytes", "tokenizer.unknown=unk"])
def test_unknown_characters_of_prompts_are_named_once(regard: Command, setting: str) -> None:
    succeeded(regard(*PRETRAIN.split(), *SMALL.split(), setting))
    with pytest.warns(UserWarning, match="the tokenizer of new has no 'Ł', 'ź'; ") as warned:
        succeeded(regard("generate", "new", "Ł and ź", "Ł", "--max-new-tokens", 2))
    assert len(warned) == 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "prompt"),
        (b"\n", "prompt"),
        (b"Ada\n\nMia\n", "prompt"),
        (b"Ada\xff\n", "UTF-8"),
        (b"Ada\fMia\n", r"no '\x0c'"),
    ],
)
def test_an_input_without_prompts_is_refused(
    regard: Command, monkeypatch: pytest.MonkeyPatch, data: bytes, says: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
    refused(regard("generate", "run", "-", "--max-new-tokens", 5), says)


def test_more_tokens_than_the_block_holds_are_refused(regard: Command) -> None:
    # The first of the text is ⁇, the last new one is never read.
    room = BLOCK - len("⁇Ada") + 1
    command = ("generate", "run", "Ada", "--raw", "--max-new-tokens")
    succeeded(regard(*command, room))
    refused(regard(*command, room + 1), f"context length of {BLOCK}")


# the disk


def test_a_report_that_cannot_be_written_is_named(regard: Command, run: Path) -> None:
    (run / "report.html").mkdir()
    refused(regard(*EVALUATE.split()), "run/report.html: can't be written")


def fill_disk(monkeypatch: pytest.MonkeyPatch, after: int = 0) -> None:
    """The disk is full after so many files; what fits of the next one stays."""
    numbers, write = count(), files._write

    def torn(path: Path, data: bytes) -> None:
        if next(numbers) < after:
            return write(path, data)
        write(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(files, "_write", torn)


@pytest.mark.parametrize(
    "command",
    [
        "world --out new people=80",
        f"{PRETRAIN} {SMALL}",
        f"{PRETRAIN} {SMALL} --dry-run --json facts.json",
        EVALUATE,
        f"{EVALUATE} --predictions answers.txt",
        f"{EVALUATE} --baseline majority --json figures.json",
    ],
    ids=["world", "run", "dry run", "report", "predictions", "figures"],
)
def test_a_full_disk_is_told_and_no_file_is_half_written(
    regard: Command, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Once there is room, the command works."""
    with monkeypatch.context() as full:
        fill_disk(full)
        outcome = regard(*command.split())
    assert outcome.code == 1
    (line,) = outcome.err.strip().splitlines()
    assert line.startswith("regard: ")
    assert "disk is full" in line
    assert set(outcome.new) <= {"new"}  # the empty folder of a run
    assert not outcome.changed
    succeeded(regard(*command.split()))


@pytest.mark.parametrize(
    "after", [(0, 3, 6, 8), pytest.param((1, 2, 4, 5, 7), marks=pytest.mark.slow)]
)
def test_training_goes_on_where_the_full_disk_stopped_it(
    regard: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, after: tuple[int, ...]
) -> None:
    command = (*PRETRAIN.split(), *SMALL.split(), "training.checkpoint_every=2", "--out")
    succeeded(regard(*command, "undisturbed"))
    for written in after:
        run = f"stopped-{written}"
        with monkeypatch.context() as full:
            fill_disk(full, written)
            outcome = regard(*command, run)
        assert outcome.code == 1, run
        assert outcome.err.splitlines()[-1].startswith("regard: "), run
        assert "Traceback" not in outcome.err
        succeeded(regard(*command, run, "--resume"))
        for name in ("model.safetensors", "config.toml", "tokenizer.json"):
            expected = (folder / "undisturbed" / name).read_bytes()
            assert (folder / run / name).read_bytes() == expected, run
        lines = (folder / run / "metrics.jsonl").read_text("utf-8").splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 2, 3], run


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (OSError(errno.EDQUOT, "", "new"), 1, "new: the disk is full"),
        (OSError(errno.EIO, "it broke", "new"), 1, "new: it broke"),
        (FileNotFoundError("gone: new"), 1, "gone: new"),  # as safetensors says it
        (OSError(errno.EACCES, "", "new"), 2, "new: can't be written"),
        (OSError(errno.EROFS, "", "new"), 2, "new: can't be written"),
        (OSError(errno.ENOTEMPTY, "", "new"), 2, "new: can't be written"),
        (KeyboardInterrupt(), 130, "regard: stopped"),
    ],
    ids=["quota", "broken", "gone", "no rights", "read-only", "not empty", "Ctrl-C"],
)
def test_failures_of_the_system_are_told_in_one_line(
    regard: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, says: str
) -> None:
    monkeypatch.setattr(files, "_write", Mock(side_effect=error))
    outcome = regard("world", "--out", "new", "people=80")
    assert outcome.code == code
    (line,) = outcome.err.strip().splitlines()
    assert says in line
    if code != 130:  # whose temporary files the next command replaces
        refused(outcome, says, code=code)
