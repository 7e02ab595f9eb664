"""Mechanisms in files: their options are the keyword-only arguments of the class."""

from pathlib import Path

import pytest
import torch

from regard.attention import LayerShape
from regard.attention.config import AttentionConfig, config_type
from regard.attention.contract import check
from regard.attention.registry import find, mechanisms
from regard.config import Config, field_docs, override, to_toml
from regard.errors import UserError
from regard.runs.recipe import Recipe
from regard.toml import to_commented_toml

SHAPE = LayerShape(
    n_heads=4, n_kv_heads=2, n_value_heads=2, d_head=8, context_length=32, layer=1, seed=3
)
HEAD = """
from typing import Annotated

from msgspec import Meta

from regard.attention import Softmax


class Own(Softmax):
    '''Own attention.'''

    name = "own"

"""
FILE = (
    HEAD
    + """
    def __init__(
        self,
        *,
        n_kv_heads: int,
        context_length: int,
        scale: Annotated[float, Meta(gt=0, description="Factor of scores.")] = 1.0,
        rounds: int = 1,
    ) -> None:
        super().__init__()
        self.made_with = (n_kv_heads, context_length, scale, rounds)
"""
)


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text, "utf-8")
    return f"{path}:Own"


def overridden(kind: str, *settings: str) -> Recipe:
    options = [f"model.attention.{setting}" for setting in settings]
    return override(Recipe(), [f"model.attention.kind={kind}", *options])


def test_options_come_from_the_signature_and_the_rest_from_the_layer(tmp_path: Path) -> None:
    config = overridden(write(tmp_path, FILE), "scale=2").model.attention  # type: ignore[union-attr]
    assert isinstance(config, AttentionConfig)
    assert getattr(config.build(SHAPE), "made_with") == (2, 32, 2.0, 1)  # noqa: B009


def test_options_are_documented_by_their_annotations(tmp_path: Path) -> None:
    config = config_type(write(tmp_path, FILE))
    assert field_docs(config).items() >= {"scale": "Factor of scores.", "rounds": ""}.items()
    assert find(write(tmp_path, FILE)).summary == "Own attention."


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("scale=-1", r"model\.attention\.scale: expected a number > 0\.0"),
        ("scale=wide", r"model\.attention\.scale: expected a number > "),
        ("scal=1", r"model\.attention\.scal: no such field; there are: rounds, scale"),
        ("n_kv_heads=1", r"model\.attention\.n_kv_heads: no such field"),
    ],
)
def test_wrong_options_are_named_with_their_path(tmp_path: Path, setting: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        overridden(write(tmp_path, FILE), setting)


def test_a_configuration_survives_overrides_and_names_the_file_alone(tmp_path: Path) -> None:
    recipe = overridden(write(tmp_path, FILE), "rounds=3")
    assert override(recipe, ["seed=1"]).model == recipe.model
    assert 'kind = "mine.py:Own"' in to_toml(recipe)


def test_a_file_may_have_a_configuration_struct(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
    pass


from typing import ClassVar

from regard.attention.config import AttentionConfig
from regard.config import Config


class OwnConfig(AttentionConfig, Config, frozen=True):
    '''Own, configured.'''

    paper: ClassVar = "Nobody, 2026"
    supports: ClassVar = Own.supports

    sharp: bool = False
    '''Whether scores are unscaled.'''
    rounds: int = 1

    def build(self, shape):
        return Own(scaled=not self.sharp)
"""
    )
    kind = write(tmp_path, text) + "Config"
    recipe = overridden(kind, "sharp=true")
    assert 'kind = "mine.py:OwnConfig"\nsharp = true\nrounds = 1' in to_toml(recipe)
    assert "# Whether scores are unscaled.\nsharp = true\nrounds = 1" in to_commented_toml(recipe)
    found = find(kind)
    assert (found.summary, found.config.paper) == ("Own, configured.", "Nobody, 2026")
    assert issubclass(found.config, Config)
    assert field_docs(found.config)["sharp"] == "Whether scores are unscaled."


@pytest.mark.parametrize(
    ("supports", "says"),
    [("", "lacks supports"), ("supports: ClassVar = Support(bias=True)", "Own.supports is not")],
)
def test_a_configuration_declares_the_features_of_its_mechanism(
    tmp_path: Path, supports: str, says: str
) -> None:
    text = f"""{HEAD}
    pass


from typing import ClassVar

from regard.attention import Support
from regard.attention.config import AttentionConfig
from regard.config import Config


class OwnConfig(AttentionConfig, Config, frozen=True):
    {supports}

    def build(self, shape):
        return Own()
"""
    with pytest.raises(UserError, match=says):
        find(write(tmp_path, text) + "Config")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("self, width", "width is not a keyword-only argument"),
        ("self, *, width: int", "width"),
    ],
)
def test_arguments_that_nobody_gives_are_named(tmp_path: Path, arguments: str, says: str) -> None:
    text = HEAD + f"    def __init__({arguments}):\n        super().__init__()\n"
    with pytest.raises(UserError, match=says):
        find(write(tmp_path, text))


def test_a_required_option_is_asked_for(tmp_path: Path) -> None:
    text = HEAD + "    def __init__(self, *, width: int):\n        super().__init__()\n"
    with pytest.raises(UserError, match=r"missing required field `width`"):
        overridden(write(tmp_path, text))
    overridden(write(tmp_path, text), "width=3")


def test_an_error_of_the_class_is_told_with_its_options(tmp_path: Path) -> None:
    text = (
        HEAD + "    def __init__(self, *, width: int = 0):\n        raise ValueError('too thin')\n"
    )
    with pytest.raises(UserError, match=r"mine\.py:Own can't be built with .*'width': 0.*too thin"):
        find(write(tmp_path, text)).example()


def test_an_edited_file_is_another_class(tmp_path: Path) -> None:
    kind = write(tmp_path, FILE)
    first = config_type(kind)
    assert config_type(kind) is first
    write(tmp_path, FILE.replace("rounds: int = 1", "rounds: int = 2"))
    assert config_type(kind) is not first
    assert overridden(kind).model.attention.rounds == 2  # type: ignore[union-attr]


LAYERS = (
    HEAD
    + """
    def __init__(self, *, layer: int = 0) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, query, key, value, **options):
        out = super().forward(query, key, value, **options)
        return 2 * out if self.layer % 2 else out
"""
)


def test_a_mechanism_that_depends_on_its_layer_is_checked_in_several(tmp_path: Path) -> None:
    """Only layer 0 was, so a mistake of every second one passed."""
    mechanism = find(write(tmp_path, LAYERS))
    assert mechanism.layers == 4
    outcomes = check(mechanism, dtype=torch.float64)
    failed = {outcome.case[:7] for outcome in outcomes if outcome.failure}
    assert failed == {"layer 1", "layer 3"}


def test_others_are_checked_once(tmp_path: Path) -> None:
    """Draws that a layer seeds are of one kind."""
    assert find(write(tmp_path, FILE)).layers == 1
    assert {mechanism.layers for mechanism in mechanisms().values()} == {1}
