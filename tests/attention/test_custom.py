"""Mechanisms in files: their options are the keyword-only arguments of the class."""

from pathlib import Path
from typing import cast

import pytest
import torch

from regard.attention import LayerShape
from regard.attention.config import AttentionConfig, config_type
from regard.attention.contract import check
from regard.attention.registry import find, mechanisms
from regard.config import override, to_toml
from regard.errors import UserError
from regard.explorer.intercept import capture_attention
from regard.models.attention_layers import CrossAttention
from regard.models.config import EncoderConfig, TargetConfig
from regard.models.recurrent_config import RecurrentConfig
from regard.models.seq2seq import GlobalAttention
from regard.runs.recipe import Recipe
from regard.toml import field_docs, to_commented_toml
from tiny_models import tiny_model

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


def test_options_are_keyword_arguments_and_the_layer_supplies_the_rest(tmp_path: Path) -> None:
    kind = write(tmp_path, FILE)
    recipe = overridden(kind, "scale=2")
    config = recipe.model.attention  # type: ignore[union-attr]
    assert isinstance(config, AttentionConfig)
    assert getattr(config.build(SHAPE), "made_with") == (2, 32, 2.0, 1)  # noqa: B009
    docs = field_docs(config_type(kind))
    assert docs.items() >= {"scale": "Factor of scores.", "rounds": ""}.items()
    assert override(recipe, ["seed=1"]).model == recipe.model
    assert 'kind = "mine.py:Own"' in to_toml(recipe)  # the file alone


CONFIGURED = (
    HEAD
    + """
    pass


from typing import ClassVar

from regard.attention import Support
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


def test_a_file_may_have_a_configuration_struct(tmp_path: Path) -> None:
    kind = write(tmp_path, CONFIGURED) + "Config"
    recipe = overridden(kind, "sharp=true")
    assert 'kind = "mine.py:OwnConfig"\nsharp = true\nrounds = 1' in to_toml(recipe)
    assert "# Whether scores are unscaled.\nsharp = true\nrounds = 1" in to_commented_toml(recipe)
    found = find(kind)
    assert (found.summary, found.config.paper) == ("Own, configured.", "Nobody, 2026")


SUPPORTS = "    supports: ClassVar = Own.supports\n"
INIT = HEAD + "    def __init__(self, {}):\n        {}\n"
REFUSED: dict[str, tuple[str, str, str]] = {
    "below its range": (FILE, "scale=-1", r"model\.attention\.scale: expected a number > 0\.0"),
    "of another type": (FILE, "scale=wide", r"model\.attention\.scale: expected a number > "),
    "unknown": (FILE, "scal=1", r"model\.attention\.scal: no such field; there are: rounds, scale"),
    "supplied by the layer": (FILE, "n_kv_heads=1", r"attention\.n_kv_heads: no such field"),
    "positional": (INIT.format("width", "..."), "", "width is not a keyword-only argument"),
    "missing": (INIT.format("*, width: int", "..."), "", "missing required field `width`"),
    "without features": (CONFIGURED.replace(SUPPORTS, ""), "", "lacks supports"),
    "with other features": (
        CONFIGURED.replace(SUPPORTS, SUPPORTS.replace("Own.supports", "Support(bias=True)")),
        "",
        "Own.supports is not that of OwnConfig",
    ),
}


@pytest.mark.parametrize(("text", "setting", "says"), REFUSED.values(), ids=REFUSED)
def test_wrong_options_and_files_are_refused(
    tmp_path: Path, text: str, setting: str, says: str
) -> None:
    def make() -> None:
        kind = write(tmp_path, text) + ("Config" if "OwnConfig" in text else "")
        overridden(kind, *filter(None, [setting]))
        find(kind).example()

    with pytest.raises(UserError, match=says):
        make()


def test_an_edited_file_is_another_class(tmp_path: Path) -> None:
    kind = write(tmp_path, FILE)
    first = config_type(kind)
    assert config_type(kind) is first
    write(tmp_path, FILE.replace("rounds: int = 1", "rounds: int = 2"))
    assert overridden(kind).model.attention.rounds == 2  # type: ignore[union-attr]


LAYERS = (
    HEAD.replace("import Softmax", "import Softmax, Support")
    + """
    supports = Support(masks=frozenset({"alignment"}))

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
    outcomes = check(mechanism, dtype=torch.bfloat16)  # which takes no differences
    failed = {outcome.case[:7] for outcome in outcomes if outcome.failure}
    assert failed == {"layer 1", "layer 3"}


def test_others_are_checked_once(tmp_path: Path) -> None:
    """Draws that a layer seeds are of one kind."""
    assert find(write(tmp_path, FILE)).layers == 1
    assert {mechanism.layers for mechanism in mechanisms().values()} == {1}


HEAD = """
import torch
from regard.attention import Softmax

class Own(Softmax):
    '''Own.'''
    name = "own"
"""
BROKEN = {
    "before super": (
        "    def __init__(self, *, width: int = 2):\n"
        "        self.weight = torch.nn.Parameter(torch.zeros(width))\n",
        r"Own can't be built with .*'width': 2.*AttributeError: cannot assign parameters before",
    ),
    "any error": (
        "    def __init__(self):\n        raise RuntimeError('boom')\n",
        r"Own can't be built with \{\}: RuntimeError: boom",
    ),
    "an option named kind": (
        "    def __init__(self, *, kind: str = 'a'):\n        super().__init__()\n",
        "an option can't be named kind",
    ),
    "an option with the name of an attribute": (
        "    def __init__(self, *, state: int = 3):\n        super().__init__()\n",
        "an option can't be named state",
    ),
    "an unknown type": (
        "    def __init__(self, *, width: 'Unknown' = 3):\n        super().__init__()\n",
        "types of its arguments can't be read: NameError",
    ),
    "features of another type": ('    supports = {"bias"}\n', "supports is a set; write Support"),
}


@pytest.mark.parametrize(("body", "says"), BROKEN.values(), ids=BROKEN)
def test_broken_custom_mechanisms_are_refused(tmp_path: Path, body: str, says: str) -> None:
    """They ended in a traceback, or shadowed an attribute."""
    path = tmp_path / "mine.py"
    path.write_text(HEAD + body)
    with pytest.raises(UserError, match=says):
        find(f"{path}:Own")


DECLARED = (
    HEAD
    + """
    queries_per_head = 2


from regard.attention.config import AttentionConfig
from regard.config import Config

class OwnConfig(AttentionConfig, Config, frozen=True, tag_field="kind", tag="own"):
    supports = Own.supports

    def build(self, shape):
        return Own()
"""
)


def test_mechanisms_of_other_queries_than_their_layer_projects_are_refused(tmp_path: Path) -> None:
    """Tensors of such a self-attention failed to fit in its first call."""
    kind = f"{write(tmp_path, DECLARED)}Config"
    own = cast(type[AttentionConfig], config_type(kind))()
    says = r"^.+:OwnConfig: .* projects 1 queries for each head, but Own.queries_per_head is 2; "
    config = TargetConfig(cross_attention=own)
    for build in (
        lambda: find(kind),
        lambda: tiny_model(attention=own),
        lambda: CrossAttention(config, 0, EncoderConfig()),
        lambda: GlobalAttention(RecurrentConfig(), own, 8),
    ):
        with pytest.raises(UserError, match=says):
            build()


def test_a_configuration_whose_mechanism_cant_be_built_is_refused(tmp_path: Path) -> None:
    """It ended in a traceback."""
    broken = DECLARED.replace("return Own()", "return Own(3)").replace("queries_per_head = 2", "")
    kind = f"{write(tmp_path, broken)}Config"
    own = cast(type[AttentionConfig], config_type(kind))()
    for build in (lambda: find(kind), lambda: tiny_model(attention=own)):
        with pytest.raises(UserError, match=r"OwnConfig can't be built with \{\}: .* takes 1 posi"):
            build()


def test_two_queries_per_head_are_projected(tmp_path: Path) -> None:
    kind = write(tmp_path, HEAD.replace("Softmax", "Differential") + "    pass\n")
    model = tiny_model(attention=config_type(kind)())
    record, *_ = capture_attention(model, torch.zeros(1, 5, dtype=torch.long))
    assert record.query.shape[1] == 2 * record.weights.shape[1]
