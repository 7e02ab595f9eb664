"""Values that no machine has the memory for are refused in a line, before any is taken."""

import pytest

from regard.device import require_memory
from regard.errors import UserError
from tiny import Command, refused

PRETRAIN = ("pretrain", "text.txt", "--out", "new", "--dry-run")
COPY = ("train", "copy", "--out", "new", "--dry-run")


@pytest.mark.usefixtures("run")
def test_a_value_beyond_the_machine_is_refused(regard: Command) -> None:
    for command, says in [
        (
            (*PRETRAIN, "model.context_length=4294967295"),
            "model.context_length: expected an integer <=",
        ),
        ((*PRETRAIN, "model.n_layers=99999999999999999999999"), "model.n_layers"),
        ((*PRETRAIN, "model.n_layers=1000000000"), "layers, 8 heads"),
        ((*PRETRAIN, "model.d_model=1000000000"), "width 1000000000"),
        ((*PRETRAIN, "training.epochs=1000000000"), "choose at most 100,000,000"),
        ((*COPY, "training.steps=9223372036854775807"), "training.steps: expected an integer <="),
        ((*COPY, "training.batch=1000000000"), "training.batch=1000000000: needs at least"),
        ((*COPY, "task.length=1000000000000"), "task.length: expected an integer <= 16777216"),
        ((*PRETRAIN, "tokenizer.kind=byte-pairs", "tokenizer.size=99999999999"), "tokenizer.size"),
        (("generate", "run", "Ada", "--num-beams", "100000000000"), "sequences of each prompt"),
        (
            ("generate", "run", "Ada", "--temperature", "1", "--num-return-sequences", "9" * 11),
            "sequences of each prompt: needs at least",
        ),
        (("generate", "run", "Ada", "--threads", "1000000"), "--threads 1,000,000: choose at most"),
        ((*COPY[:-1], "--threads", "1000000"), "--threads 1,000,000: choose at most"),
        (("compare", "copy", "--threads", "1000000", "--dry-run"), "threads 1,000,000: choose"),
    ]:
        refused(regard(*command), says)


def test_where_the_memory_is_unknown_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 2**30}
    monkeypatch.setattr("os.sysconf", sizes.__getitem__)
    with pytest.raises(UserError, match=r"it: needs at least 2 GiB .* this machine has 1 GiB"):
        require_memory(2**31, "it")
    require_memory(2**30, "it")
    monkeypatch.delattr("os.sysconf")
    require_memory(2**60, "it")
