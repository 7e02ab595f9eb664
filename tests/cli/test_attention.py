"""regard attention list, check; mechanisms from the command line."""

import json
from pathlib import Path

import pytest

from regard.attention.config import BUILT_IN
from regard.attention.registry import mechanisms
from tiny import Command, succeeded

pytestmark = pytest.mark.usefixtures("run")


def test_the_list_has_every_mechanism_and_what_it_can_do(regard: Command) -> None:
    outcome = succeeded(regard("attention", "list", "--json", "list.json"))
    for name, mechanism in mechanisms().items():
        assert name in outcome.out
        assert mechanism.config.paper.split(",")[0] in outcome.out
    listed = json.loads(Path("list.json").read_text("utf-8"))
    assert set(listed) == set(BUILT_IN)
    assert listed["linformer"]["causal"] is False
    assert listed["elu"]["decodes"] is True


def test_a_mechanism_that_keeps_the_contract_passes(regard: Command) -> None:
    outcome = succeeded(regard("attention", "check", "linformer", "--precision", "float32"))
    assert "✓ linformer in float32 on cpu" in outcome.out


def test_one_of_ones_own_is_told_in_words_what_fails(regard: Command) -> None:
    Path("mine.py").write_text(
        "from regard.attention import Softmax\n\n\n"
        "class Deaf(Softmax):\n    name = 'deaf'\n\n"
        "    def forward(self, query, key, value, *, mask=None, bias=None, gates=None):\n"
        "        return super().forward(query, key, value, bias=bias)\n"
    )
    outcome = regard("attention", "check", "mine.py:Deaf", "--precision", "float32")
    assert outcome.code == 1
    assert "✗ mine.py:Deaf in float32 on cpu: causal: with causal: rows before" in outcome.out
    assert "✗ mine.py:Deaf in float32 on cpu: padding is ignored" in outcome.out
    assert "Traceback" not in outcome.out + outcome.err


@pytest.mark.slow
def test_the_example_of_gates_in_the_docs_keeps_the_contract(regard: Command) -> None:
    """The one without gates is checked, and compared, in slow/test_goals.py."""
    page = (Path(__file__).parents[2] / "docs" / "attention.md").read_text("utf-8")
    code = next(part for part in page.split("```python\n") if part.startswith("# leaky.py"))
    Path("leaky.py").write_text(code.partition("```")[0], "utf-8")
    outcome = succeeded(regard("attention", "check", "leaky.py:Leaky"))
    assert outcome.out.count("✓ leaky.py:Leaky") == 3
