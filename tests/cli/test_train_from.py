"""`regard train --from` begins with a run or a Hugging Face folder."""

from pathlib import Path

from regard.runs.run import Run
from tiny import MODEL, STEPS, Command, refused, succeeded
from tiny_folders import gpt2_folder, gpt2_pieces


def test_a_run_learns_more_text_and_another_task(regard: Command, folder: Path, run: Path) -> None:
    lines = "".join(f"Ada Finch was born in Rome {'again ' * i}.\n" for i in range(20))
    (folder / "more.txt").write_text(lines, "utf-8")
    known = Run.load(run).tokenizer
    text = "".join(c for c in lines if c == "\n" or known.native.token_to_id(c) is not None)
    (folder / "more.txt").write_text(text, "utf-8")
    outcome = succeeded(regard("train", "text", "more.txt", "--from", "run", "--out", "lm", *STEPS))
    assert "parent: run\n" in outcome.out
    assert "new tensors" not in outcome.out
    succeeded(regard("evaluate", "lm", "more.txt"))
    table = "".join(
        f"{name} was born\t{place}\n" for name, place in [("Ada", "a"), ("Leo", "b")] * 4
    )
    (folder / "table.tsv").write_text(table, "utf-8")
    flags = ("--from", "lm", "--out", "labels", *STEPS)
    outcome = succeeded(regard("train", "classification", "table.tsv", *flags))
    assert "new tensors: head.layer.weight, " in outcome.out
    assert "dropped tensors: head.weight\n" in outcome.out
    assert Run.load(folder / "labels").tokenizer.fingerprint == known.fingerprint
    refused(regard("train", "classification", "table.tsv", *flags), "holds a run")
    succeeded(regard("train", "classification", "table.tsv", *flags, "--resume"))


def test_a_hugging_face_folder_is_a_start(regard: Command, folder: Path) -> None:
    gpt2_folder(folder / "gpt2", gpt2_pieces(), {})
    flags = ("--from", "hf:gpt2", "--out", "quiz", *STEPS)
    outcome = succeeded(regard("train", "questions", "pairs.tsv", *flags))
    assert "parent: hf:gpt2\n" in outcome.out
    origin = Run.load(folder / "quiz").origin
    assert (origin["parent"], origin["ancestors"][0]["run"]) == ("hf:gpt2", f"hf:{folder / 'gpt2'}")
    flags = ("--from", "hf:gpt2", "--out", "tuned", *STEPS)
    succeeded(regard("finetune", "pairs.tsv", *flags))


def test_a_finished_run_gets_more_steps(regard: Command, folder: Path) -> None:
    flags = ("train", "questions", "pairs.tsv", "--out")
    succeeded(regard(*flags, "first", *MODEL, *STEPS))
    more = (*flags, "second", "--from", "first", "--steps", "+2")
    outcome = succeeded(regard(*more, "--seed", "0"))
    assert "steps: 5\n" in outcome.out
    assert "steps before: 3\n" in outcome.out
    assert (folder / "second/checkpoints/5").is_dir()
    refused(regard(*more), "holds a run")
    succeeded(regard(*more, "--resume"))
    shown = succeeded(regard("info", "second")).out.partition("provenance:\n")[2].splitlines()
    data = Run.load(folder / "first").origin["fingerprint"]
    pairs = (folder / "pairs.tsv").resolve()
    assert shown == [
        f"second: questions on {pairs}, 5 steps, data {data}",
        f"└─ {folder / 'first'}: questions on {pairs}, 3 steps, data {data}",
    ]
    outcome = regard(*flags, "new", "--from", "first", "--steps", "+99999999")
    refused(outcome, "training.steps: expected an integer <= 100000000")
