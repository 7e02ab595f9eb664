"""Mechanisms by name, from files and from packages, and who can do what another can't."""

import re
from dataclasses import fields
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_cases import furthest

from regard.attention import KernelAttention, Mask, Softmax, Support
from regard.attention.config import ALL_MASKS, BUILT_IN, GROUP, config_type, supporting
from regard.attention.registry import find, mechanisms
from regard.attention.score_config import LinformerConfig
from regard.errors import UnsupportedError, UserError
from regard.models.config import DecoderConfig
from regard.models.transformer import Decoder

OF_LAYERS = {"kv_heads", "qk_norm", "short_conv", "added_values"}
FLAGS = {field.name for field in fields(Support)} - {"masks", "differentiable"} - OF_LAYERS
ABILITIES = sorted(ALL_MASKS | FLAGS)

SOFTER = '''
from __future__ import annotations
from dataclasses import dataclass

import torch

from regard.attention import reference as references
from regard.attention.softmax import ScoreAttention, softmax


@dataclass(frozen=True)
class State:
    bytes: int


def halved(x):
    return x * torch.tensor(0.5, dtype=x.dtype)


class Softer(ScoreAttention):
    """Half the scores.

    So that weights are more even.
    """

    name = "softer"

    def normalize_scores(self, scores, allowed):
        return softmax(halved(scores), allowed)


class Undocumented(Softer):
    def reference(self, query, key, mask, bias):
        return references.softmax(query / 2, key, references.allowed(query, key, mask), bias)
'''


def file(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def complaint(name: str) -> str:
    """The one line about a name under which there is no mechanism."""
    with pytest.raises(UserError) as error:
        find(name)
    assert "\n" not in str(error.value)
    return str(error.value)


# By name


def test_the_mechanisms_of_regard_are_known_by_their_names() -> None:
    known = mechanisms()
    assert list(known) == list(BUILT_IN)
    for name, mechanism in known.items():
        assert mechanism.name == name
        assert find(name) == mechanism
        attend = mechanism.example()
        assert type(attend) is mechanism.type
        if isinstance(attend, KernelAttention):
            assert type(attend.features).__name__.lower() == name.replace("-", "")
        else:
            assert attend.name == ("softmax" if name == "gated-softmax" else name)
        assert mechanism.reference is not None
        assert mechanism.summary
        assert mechanism.config.paper
        assert mechanism.config.time
        assert bool(mechanism.config.state) == mechanism.type.supports.decoding
        low, high = mechanism.config.check_inputs
        assert low < high


@pytest.mark.parametrize("name", ["", "soft max", ":x"])
def test_an_unknown_name_raises_with_all_that_there_are(name: str) -> None:
    said = complaint(name)
    assert said.startswith(f"{name}: no such mechanism; there are: ")
    assert f"{', '.join(BUILT_IN)}, FILE.py:CLASS" in said


# From a file


def test_a_class_in_a_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a relative path, and in a folder with a colon."""
    (tmp_path / "a:b").mkdir()
    monkeypatch.chdir(tmp_path)
    absolute = file(tmp_path, SOFTER, "a:b/mine.py")
    file(tmp_path, SOFTER)
    x = torch.randn(1, 2, 5, 4)
    for name in (f"{absolute}:Softer", "mine.py:Softer", "./mine.py:Softer"):
        mechanism = find(name)
        assert (mechanism.name, mechanism.summary) == (name, "Half the scores.")
        assert mechanism.reference is None
        attend = mechanism.example()
        assert (type(attend), attend.name) == (mechanism.type, "softer")
        # Two roundings of scores of order one.
        assert furthest(attend(x, x, x), Softmax()(x / 2, x, x)) <= 8 * torch.finfo(x.dtype).eps
    other = find("mine.py:Undocumented")
    assert other.summary == ""
    assert other.reference is not None
    weights = other.reference(other.example(), x, x, Mask(), None)
    torch.testing.assert_close(weights.float(), other.example().weights(x, x))


IMPORT = "from regard.attention import *\n"
UNNAMED = f"{IMPORT}class Own(Attention):\n" + "".join(
    f"    def {method}(self): ...\n" for method in ("_forward", "_weights", "cost")
)
BAD_FILES = {
    "no class of that name": ("class Other: ...", "mine.py: has no class 'Own'.* FILE.py:CLASS"),
    "no class but a number": ("Own = 3", "mine.py:Own: is not a subclass .*Attention"),
    "a class of another kind": ("class Own: ...", "mine.py:Own: is not a subclass"),
    "an instance": (f"{IMPORT}Own = Softmax()", "mine.py:Own: is not a subclass"),
    "a syntax error": ("class Own(:", "mine.py: can't be loaded: SyntaxError"),
    "an error of its own": ("1 / 0", "mine.py: .*ZeroDivisionError: division by zero"),
    "a missing package": ("import nowhere_to_be_found", "mine.py: .*nowhere_to_be_found"),
    "missing methods": (
        f"{IMPORT}class Own(Attention):\n    name = 'own'\n",
        "mine.py:Own: lacks _forward, _weights, cost",
    ),
    "no name and no features": (UNNAMED, "mine.py:Own: lacks name, supports"),
    "bytes that aren't text": ("\udcff", "mine.py: can't be loaded: SyntaxError"),
}


def test_a_file_without_a_mechanism_is_refused(tmp_path: Path) -> None:
    for name, (text, says) in BAD_FILES.items():
        assert re.search(says, complaint(f"{file(tmp_path, text)}:Own")), name


UNFINISHED_NAMES = {
    "one class": (
        "class Helper: ...\nclass Own(Attention): ...\n",
        "names no class; write mine.py:Own",
    ),
    "two classes": (
        "class A(B): ...\nclass C(A): ...\n",
        "names no class; write mine.py:A or mine.py:C",
    ),
    "none, and not run": ("raise SystemExit\n", "names no class; write FILE.py:CLASS"),
    "a syntax error": ("class\n", "can't be loaded: SyntaxError: "),
}


def test_a_file_without_a_class_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, (text, says) in UNFINISHED_NAMES.items():
        file(tmp_path, text)
        assert complaint("mine.py").startswith(f"mine.py: {says}"), name
    for missing in ("nowhere.py", "nowhere.py:Own"):
        assert complaint(missing) == "nowhere.py: no such file"


# From packages


def entry(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an installed package's mechanism known."""

    def entry_points(*, group: str) -> list[EntryPoint]:
        assert group == GROUP
        return [EntryPoint(name, value, group)]

    monkeypatch.setattr("regard.attention.config.entry_points", entry_points)


def test_a_package_makes_its_mechanism_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert GROUP == "regard.attention"
    entry("theirs", "regard.attention.softmax:Softmax", monkeypatch)
    assert list(mechanisms()) == [*BUILT_IN, "theirs"]
    theirs = find("theirs")
    assert theirs.name == "theirs"
    assert theirs.type is Softmax
    assert isinstance(theirs.example(), Softmax)
    assert "theirs" in complaint("ours")


BAD_PACKAGES = {
    "nowhere_to_be_found:Own": "nowhere_to_be_found",
    "regard.attention.softmax:Nobody": "Nobody",
    "regard.attention.mask:Mask": "not a subclass",
    "regard.attention.softmax:ScoreAttention": "normalize_scores",
}


def test_a_package_without_a_mechanism_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, says in BAD_PACKAGES.items():
        entry("theirs", value, monkeypatch)
        assert re.search(f"theirs: .*{says}", complaint("theirs")), value
        assert find("softmax").type is Softmax


# Who can


def test_able_names_exactly_those_that_have_an_ability() -> None:
    known = mechanisms()
    for ability in ABILITIES:
        supporting_ones = {
            name
            for name, mechanism in known.items()
            if ability in mechanism.type.supports.masks
            or getattr(mechanism.type.supports, ability, False) is True
        }
        assert supporting_ones
        assert set(supporting(ability)) == supporting_ones
        assert len(supporting(ability)) == len(supporting_ones)
    assert supporting("nonsense") == []


def test_an_error_about_a_feature_builds_no_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in BUILT_IN:
        monkeypatch.setattr(config_type(kind), "build", lambda *_: pytest.fail("it is built"))
    with pytest.raises(UnsupportedError, match=r"linformer .* supported by: softmax, argmax"):
        Decoder(DecoderConfig(attention=LinformerConfig()), vocabulary=5)


def test_what_is_no_bias_is_never_ignored() -> None:
    for name in BUILT_IN:
        attend, x = find(name).example().eval(), torch.ones(1, 2, 4, 4)
        tensor: Any = torch.zeros(2, 4, 4)
        with pytest.raises((TypeError, UnsupportedError), match="bias"):
            attend(x.repeat(1, attend.queries_per_head, 1, 1), x, x, bias=tensor)


@pytest.mark.parametrize("ability", ABILITIES)
def test_a_refusal_names_all_that_can(ability: str) -> None:
    """That they can, and that calls of the others raise, is checked by the contract."""
    supporting_ones = supporting(ability)
    for name, mechanism in mechanisms().items():
        attend = mechanism.example()
        if name in supporting_ones:
            attend.require_support(ability)
            continue
        with pytest.raises(UnsupportedError) as error:
            attend.require_support(ability)
        assert str(error.value).startswith(f"{attend.name} attention does not support ")
        assert str(error.value).endswith(f"; supported by: {', '.join(supporting_ones)}")


def test_more_value_heads_than_key_heads_are_refused() -> None:
    x = torch.ones(1, 2, 4, 4)
    with pytest.raises(UnsupportedError, match="softmax attention does not support more value"):
        Softmax()(x, x[:, :1], x)


@pytest.mark.parametrize("name", supporting("cross"))
def test_a_memory_takes_lengths_and_no_other_mask(name: str) -> None:
    attend, x = find(name).example(), torch.ones(1, 2, 4, 4)
    lengths = Mask.lengths(torch.tensor([2]))
    assert attend.encode_memory(x, x, mask=lengths).length.tolist() == [2]
    with pytest.raises(ValueError, match=f"{attend.name}.*alignment"):
        attend.encode_memory(x, x, mask=lengths & Mask.causal())


def test_states_of_unsupported_features_are_refused() -> None:
    x = torch.ones(1, 2, 4, 4)
    state = Softmax().encode_memory(x, x)
    bigbird, linformer = find("bigbird").example(), find("linformer").example()
    with pytest.raises(UnsupportedError, match=r"bigbird .* cross-attention; supported by: softma"):
        bigbird.attend_memory(x, state)
    with pytest.raises(UnsupportedError, match=r"linformer .* decoding; supported by: softmax"):
        linformer.extend(x, x, x, state)
