"""Mechanisms by name, from files and from packages, and who can do what another can't."""

from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_cases import furthest

from regard.attention import (
    RWKV7,
    Argmax,
    Attention,
    BigBird,
    DeltaNet,
    Differential,
    Forgetting,
    GatedDeltaNet,
    GatedDeltaNet2,
    GatedLinear,
    KernelAttention,
    KimiDelta,
    Latent,
    LayerShape,
    Linformer,
    Mamba2,
    Mask,
    MoBA,
    Sigmoid,
    SlidingWindow,
    Softmax,
    SoftmaxOne,
    StickBreaking,
    Synthesizer,
    TopK,
)
from regard.attention.config import ALL_MASKS, BUILT_IN, GROUP, config_type, supporting
from regard.attention.contract_cases import TableBias
from regard.attention.registry import find, mechanisms
from regard.attention.score_config import LinformerConfig
from regard.errors import UnsupportedError, UserError
from regard.models.config import DecoderConfig
from regard.models.transformer import Decoder
from regard.positions import ShawVectors

TYPES: dict[str, type[Attention]] = {
    "softmax": Softmax,
    "argmax": Argmax,
    "gated-softmax": Softmax,
    "softmax-one": SoftmaxOne,
    "forgetting": Forgetting,
    "latent": Latent,
    "differential": Differential,
    "top-k": TopK,
    "moba": MoBA,
    "stick-breaking": StickBreaking,
    "sigmoid": Sigmoid,
    "synthesizer": Synthesizer,
    "linformer": Linformer,
    "bigbird": BigBird,
    "sliding-window": SlidingWindow,
    "elu": KernelAttention,
    "polynomial": KernelAttention,
    "fourier": KernelAttention,
    "favor-positive": KernelAttention,
    "favor-trigonometric": KernelAttention,
    "favor-hyperbolic": KernelAttention,
    "gated-linear": GatedLinear,
    "mamba2": Mamba2,
    "deltanet": DeltaNet,
    "gated-deltanet": GatedDeltaNet,
    "kimi-delta": KimiDelta,
    "gated-deltanet-2": GatedDeltaNet2,
    "rwkv7": RWKV7,
}
ABILITIES = [
    *sorted(ALL_MASKS),
    *("bias", "vectors", "dropout", "cross", "decoding", "bidirectional", "value_heads"),
]

OWN_FILE = '''
import torch

from regard.attention.softmax import ScoreAttention, softmax


def halved(x):
    return x * torch.tensor(0.5, dtype=x.dtype)


class Softer(ScoreAttention):
    """Half the scores.

    So that weights are more even.
    """

    name = "softer"

    def normalize_scores(self, scores, allowed):
        return softmax(halved(scores), allowed)
'''


def file(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def complaint(name: str) -> str:
    """What is said of a name under which there is no mechanism."""
    with pytest.raises(UserError) as error:
        find(name)
    return str(error.value)


# By name


def test_the_mechanisms_of_regard_are_known_by_their_names() -> None:
    known = mechanisms()
    assert {name: mechanism.type for name, mechanism in known.items()} == TYPES
    assert list(BUILT_IN) == list(TYPES)
    for name, mechanism in known.items():
        assert mechanism.name == name
        assert find(name) == mechanism
        assert type(mechanism.example()) is mechanism.type
        assert mechanism.reference is not None
        assert mechanism.summary
        assert mechanism.config.paper
        assert mechanism.config.time
        assert bool(mechanism.config.state) == mechanism.type.supports.decoding
        low, high = mechanism.inputs
        assert low < high


def test_each_example_is_a_new_one() -> None:
    for mechanism in mechanisms().values():
        assert mechanism.example() is not mechanism.example()


def test_kernel_attention_has_an_entry_for_each_map() -> None:
    maps = set()
    for mechanism in mechanisms().values():
        example = mechanism.example()
        if isinstance(example, KernelAttention):
            maps.add(type(example.features))
    assert len(maps) == 6


@pytest.mark.parametrize("name", ["", "Softmax", "soft max", "linear", "kernel", ":x"])
def test_another_name_is_answered_with_all_there_are(name: str) -> None:
    said = complaint(name)
    assert said.startswith(f"{name}: no such mechanism; there are: ")
    assert ", ".join(BUILT_IN) in said
    assert "FILE.py:CLASS" in said
    assert "\n" not in said


# From a file


def test_a_class_in_a_file_is_found(tmp_path: Path) -> None:
    name = f"{file(tmp_path, OWN_FILE)}:Softer"
    mechanism = find(name)
    assert mechanism.name == name
    assert mechanism.summary == "Half the scores."
    assert mechanism.reference is None
    attend, x = mechanism.example(), torch.randn(1, 2, 5, 4)
    assert type(attend) is mechanism.type
    assert attend.name == "softer"
    # Two roundings of scores of order one.
    exact = Softmax()(x / 2, x, x)
    assert furthest(attend(x, x, x), exact) <= 8 * torch.finfo(torch.float32).eps


def test_a_class_may_have_a_reference(tmp_path: Path) -> None:
    text = """
from regard.attention import Softmax, reference

class Own(Softmax):
    name = "own"

    def reference(self, query, key, mask, bias):
        return query.double() @ key.double().mT
"""
    reference = find(f"{file(tmp_path, text)}:Own").reference
    x = torch.ones(1, 1, 2, 3)
    assert reference is not None
    assert reference(None, x, x, None, None).tolist() == [[[[3.0, 3.0], [3.0, 3.0]]]]


def test_a_relative_path_is_found_from_the_folder_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file(tmp_path, OWN_FILE)
    monkeypatch.chdir(tmp_path)
    assert find("mine.py:Softer").type.name == "softer"
    assert find("./mine.py:Softer").type.name == "softer"


def test_a_file_may_lie_in_a_folder_with_a_colon(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    assert find(f"{file(tmp_path, OWN_FILE, 'a:b/mine.py')}:Softer").type.name == "softer"


def test_a_file_may_hold_a_dataclass(tmp_path: Path) -> None:
    """As a mechanism's state would be."""
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n" + OWN_FILE
    text += "\n\n@dataclass(frozen=True)\nclass State:\n    bytes: int\n"
    assert find(f"{file(tmp_path, text)}:Softer").type.name == "softer"


ABSTRACT = "from regard.attention import Attention\nclass Own(Attention):\n    name = 'own'\n"
UNNAMED = "from regard.attention import *\nclass Own(Attention):\n" + "".join(
    f"    def {method}(self): ...\n" for method in ("_forward", "_weights", "cost")
)
BAD_FILES = {
    "no class of that name": ("class Other: ...", ["mine.py", "'Own'", "FILE.py:CLASS"]),
    "no class but a number": ("Own = 3", ["mine.py:Own", "not a subclass", "Attention"]),
    "a class of another kind": ("class Own: ...", ["mine.py:Own", "not a subclass", "Attention"]),
    "an instance": (
        "from regard.attention import Softmax\nOwn = Softmax()",
        ["mine.py:Own", "not a subclass"],
    ),
    "a syntax error": ("class Own(:", ["mine.py", "SyntaxError"]),
    "an error of its own": ("1 / 0", ["mine.py", "ZeroDivisionError", "division by zero"]),
    "a missing package": ("import nowhere_to_be_found", ["mine.py", "nowhere_to_be_found"]),
    "methods that are missing": (ABSTRACT, ["mine.py:Own", "cost", "_forward", "_weights"]),
    "no name and no abilities": (UNNAMED, ["mine.py:Own", "name", "supports"]),
    "bytes that aren't text": ("\udcff", ["mine.py", "SyntaxError"]),
}


@pytest.mark.parametrize(("text", "named"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_without_a_mechanism_is_told_in_one_line(
    tmp_path: Path, text: str, named: list[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    said = complaint(f"{path}:Own")
    assert all(words in said for words in named), said
    assert "\n" not in said


@pytest.mark.parametrize("name", ["nowhere.py:Own", "nowhere.py", "folder.py:Own"])
def test_a_missing_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.py").mkdir()
    assert complaint(name) == f"{name.partition(':')[0]}: no such file"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("class Helper: ...\nclass Own(Attention): ...\n", "names no class; write {}:Own"),
        ("class A(B): ...\nclass C(A): ...\n", "names no class; write {}:A or {}:C"),
        ("raise SystemExit\n", "names no class; write FILE.py:CLASS"),
        ("class\n", "can't be loaded: SyntaxError: "),
    ],
)
def test_a_file_without_a_class_is_completed_and_not_run(
    tmp_path: Path, text: str, says: str
) -> None:
    (path := tmp_path / "mine.py").write_text(text, "utf-8")
    assert complaint(str(path)).startswith(f"{path}: {says.format(path, path)}")


def test_a_class_that_needs_arguments_is_told_before_it_is_made(tmp_path: Path) -> None:
    text = """
from regard.attention import Softmax

class Own(Softmax):
    name = "own"

    def __init__(self, width):
        super().__init__()
"""
    said = complaint(f"{file(tmp_path, text)}:Own")
    assert "width" in said


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


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("nowhere_to_be_found:Own", "nowhere_to_be_found"),
        ("regard.attention.softmax:Nobody", "Nobody"),
        ("regard.attention.mask:Mask", "not a subclass"),
        ("regard.attention.softmax:ScoreAttention", "normalize_scores"),
    ],
)
def test_a_package_s_mechanism_that_cannot_be_had_is_told(
    value: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry("theirs", value, monkeypatch)
    said = complaint("theirs")
    assert "theirs" in said
    assert named in said
    assert "\n" not in said


def test_a_broken_package_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    entry("theirs", "nowhere_to_be_found:Own", monkeypatch)
    assert find("softmax").type is Softmax


def test_a_class_without_a_docstring_has_no_summary(tmp_path: Path) -> None:
    text = "from regard.attention import Softmax\n\nclass Own(Softmax):\n    name = 'own'\n"
    assert find(f"{file(tmp_path, text)}:Own").summary == ""


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
    def build(self: object, shape: LayerShape) -> Attention:
        raise AssertionError(f"{self} is built for {shape}")

    for kind in BUILT_IN:
        monkeypatch.setattr(config_type(kind), "build", build)
    with pytest.raises(UnsupportedError, match=r"linformer .* supported by: softmax, argmax"):
        Decoder(DecoderConfig(attention=LinformerConfig()), vocabulary=5)


def test_abilities_are_all_that_support_has() -> None:
    from dataclasses import fields

    from regard.attention import Support

    of_layers = {"kv_heads", "qk_norm", "short_conv", "added_values"}
    flags = {field.name for field in fields(Support)} - {"masks", "differentiable"} - of_layers
    assert flags == set(ABILITIES) - ALL_MASKS


def use(attend: Attention, ability: str) -> None:
    """Use a feature."""
    x = torch.ones(1, 2, 4, 4)
    masks = {
        "alignment": Mask.causal(),
        "window_size": Mask.window(1),
        "key_lengths": Mask.lengths(torch.tensor([2])),
        "document_ids": Mask.documents(torch.tensor([[0, 0, 1, 1]])),
        "blocks": Mask.block_pairs(torch.ones(1, 2, 2, dtype=torch.bool), size=2),
        "allowed": Mask.dense(torch.ones(1, 1, 4, 4, dtype=torch.bool)),
    }
    gates = {gate.name: x.new_full(gate.shape(x, x, x), gate.high) for gate in attend.gates}
    whole = partial(attend, key=x, value=x, gates=gates)
    # Mechanisms that only look back are asked for the rest of the feature.
    widest = None if attend.supports.bidirectional else Mask.causal()
    if ability in masks:
        causal = Mask.causal() if widest and ability != "alignment" else Mask()
        whole(x, mask=masks[ability] & causal)
    elif ability == "bias":
        whole(x, mask=widest, bias=TableBias(torch.zeros(2, 4, 4)))
    elif ability == "vectors":
        whole(x, mask=widest, bias=ShawVectors(d=4, clip=1))
    elif ability == "cross":
        whole(x[:, :, :2], mask=widest)
    elif ability == "bidirectional":
        whole(x)
    elif ability == "value_heads":
        few = x[:, :1]
        attend(few, few, x, mask=widest, gates=gates)
    else:
        assert ability == "decoding"
        attend.init_state(1, 2, 4, 4, capacity=4, device=x.device, dtype=x.dtype)


def test_what_is_no_bias_is_never_ignored() -> None:
    for name in BUILT_IN:
        attend, x = find(name).example().eval(), torch.ones(1, 2, 4, 4)
        tensor: Any = torch.zeros(2, 4, 4)
        with pytest.raises((TypeError, UnsupportedError), match="bias"):
            attend(x, x, x, bias=tensor)


@pytest.mark.parametrize("ability", [ability for ability in ABILITIES if ability != "dropout"])
def test_a_refusal_names_all_that_can(ability: str) -> None:
    """And they can."""
    supporting_ones = supporting(ability)
    for name, mechanism in mechanisms().items():
        attend = mechanism.example().eval()
        if name in supporting_ones:
            use(attend, ability)
            continue
        with pytest.raises(UnsupportedError) as error:
            use(attend, ability)
        assert str(error.value).startswith(f"{attend.name} attention does not support ")
        assert str(error.value).endswith(f"; supported by: {', '.join(supporting_ones)}")


def test_the_other_ways_to_ask_are_refused_as_well() -> None:
    x = torch.ones(1, 2, 4, 4)
    bigbird, linformer = find("bigbird").example(), find("linformer").example()
    state = Softmax().encode_memory(x, x)
    with pytest.raises(
        UnsupportedError, match=r"bigbird .* cross-attention; supported by: softmax"
    ):
        bigbird.encode_memory(x, x)
    with pytest.raises(
        UnsupportedError, match=r"bigbird .* cross-attention; supported by: softmax"
    ):
        bigbird.attend_memory(x, state)
    with pytest.raises(UnsupportedError, match=r"linformer .* decoding; supported by: softmax"):
        linformer.extend(x, x, x, state)


@pytest.mark.parametrize("name", supporting("cross"))
def test_a_memory_takes_lengths_and_no_other_mask(name: str) -> None:
    attend, x = find(name).example(), torch.ones(1, 2, 4, 4)
    lengths = Mask.lengths(torch.tensor([2]))
    assert attend.encode_memory(x, x, mask=lengths).length.tolist() == [2]
    with pytest.raises(ValueError, match=f"{attend.name}.*alignment"):
        attend.encode_memory(x, x, mask=lengths & Mask.causal())
