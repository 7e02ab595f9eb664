"""What a release says about itself, and what it imports."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.errors import UserError
from regard.metrics import bleu, chrf, rouge

ROOT = Path(__file__).parents[1]


def test_the_citation_has_the_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [regard.__version__]


@pytest.mark.parametrize("score", [bleu, chrf, rouge])
def test_scores_name_their_extra_where_it_is_missing(
    score: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sacrebleu", "rouge_score.rouge_scorer"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"pip install 'regard\[metrics\]'"):
        score(["a"], ["a"])


def test_training_imports_nothing_that_takes_long(tmp_path: Path) -> None:
    code = """
import sys
from regard.cli.main import main
try:
    main()
except SystemExit as exit:
    assert not exit.code
heavy = {"torch._dynamo", "scipy", "matplotlib", "sacrebleu", "rouge_score"}
print(sorted(heavy & set(sys.modules)))
"""
    tiny = ["training.steps=1", "model.n_layers=1", "model.d_model=8", "model.n_heads=1"]
    command = ["train", "mqar", "--out", str(tmp_path / "run"), *tiny]
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
