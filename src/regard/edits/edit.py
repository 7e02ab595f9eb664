"""Edits as data: frozen, printable, stored as TOML, and combined by addition."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
import tomli_w

from regard.config import Config, parse_toml, without_none
from regard.config import convert as convert_config
from regard.errors import UserError
from regard.files import fingerprint_of, read_text

At: TypeAlias = str | int | tuple[int, ...] | None
"""Positions of the prompt: a word, an index from 0, several indices, or "last"; "each-new": all
tokens after the prompt; None: all tokens."""
CutKind: TypeAlias = Literal["before-normalization", "after-normalization", "edge", "write"]
LAST, EACH_NEW = "last", "each-new"


class Edit(Config, frozen=True):
    """Base of the edits of one site.

    Positions (`at`, `query`, `key`) are a word of the prompt (each occurrence), an index from 0,
    several indices, "last", or "each-new" for all tokens after the prompt. Default: all tokens.
    An edit that doesn't fit the model or the prompt raises an error when it is applied.

    >>> edit: Edit = zero("decoder.0.heads.1")
    >>> print(edit.to_toml())
    [[edit]]
    kind = "zero"
    site = "decoder.0.heads.1"
    <BLANKLINE>
    """

    site: str
    """A name of `regard.sites`."""

    def __add__(self, other: "Edit | Edits") -> "Edits":
        return Edits((self,)) + other

    def to_toml(self) -> str:
        """Return the edit as TOML."""
        return Edits((self,)).to_toml()

    def __str__(self) -> str:
        values = ", ".join(
            f"{name}={_shown(value)}"
            for name in self.__struct_fields__
            if name != "site" and (value := getattr(self, name)) is not None
        )
        kind = self.__struct_config__.tag
        return f"{kind} {self.site}" + (f" ({values})" if values else "")


class Zero(Edit, frozen=True, tag_field="kind", tag="zero"):
    """Set a site to zero.

    >>> print(Zero("decoder.0.heads.1", at="Ada"))
    zero decoder.0.heads.1 (at='Ada')
    """

    at: At = None


class Mean(Edit, frozen=True, tag_field="kind", tag="mean"):
    """Set a site to its mean over all tokens of some texts.

    >>> print(Mean("decoder.0.attention", texts=("Ada was born", "Bob was born")))
    mean decoder.0.attention (texts=('Ada was born', 'Bob was born'))
    """

    texts: tuple[str, ...]
    at: At = None


class Cut(Edit, frozen=True, tag_field="kind", tag="cut"):
    """Cut attention from queries to keys in a head, or the writes of keys to its state.

    >>> print(Cut("decoder.1.heads.0", query="last", key="Ada"))
    cut decoder.1.heads.0 (query='last', key='Ada')
    """

    query: At = None
    key: At = None
    how: CutKind | None = None
    """Kind of cut. Default: before normalization if the mechanism has scores, else required."""


class Patch(Edit, frozen=True, tag_field="kind", tag="patch"):
    """Set a site to its value in a run on another text of the same length.

    >>> print(Patch("decoder.0.residual", source="Bob was born in", at="Ada"))
    patch decoder.0.residual (source='Bob was born in', at='Ada')
    """

    source: str
    second: str | None = None
    """The second text of a pair, or the target of an encoder–decoder."""
    at: At = None


class Steer(Edit, frozen=True, tag_field="kind", tag="steer"):
    """Add a vector, times a scale, to a site.

    >>> print(Steer("decoder.0.residual", vector=(1.0,) * 16, scale=2.0, at="last"))
    steer decoder.0.residual (vector=16 values, scale=2.0, at='last')
    """

    vector: tuple[float, ...]
    scale: float = 1.0
    at: At = None


AnyEdit: TypeAlias = Zero | Mean | Cut | Patch | Steer


class _File(Config, frozen=True):
    """A file of edits."""

    edit: tuple[AnyEdit, ...]


@dataclass(frozen=True)
class Edits:
    """Edits that apply together; edits of the same site apply in order.

    >>> both: Edits = zero("decoder.0.heads.0") + zero("decoder.1.heads.1")
    >>> print(both)
    zero decoder.0.heads.0
    zero decoder.1.heads.1
    """

    edits: tuple[Edit, ...] = ()

    def __add__(self, other: "Edit | Edits") -> "Edits":
        return Edits((*self.edits, *as_edits(other)))

    def __iter__(self) -> Iterator[Edit]:
        return iter(self.edits)

    def __str__(self) -> str:
        return "\n".join(map(str, self.edits)) or "no edit"

    def to_toml(self) -> str:
        """Return the edits as TOML: a table `[[edit]]` for each."""
        plain = without_none(msgspec.to_builtins(self.edits))
        return "\n".join(f"[[edit]]\n{tomli_w.dumps(one)}" for one in plain) or "edit = []\n"

    @property
    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that identify the edits."""
        return fingerprint_of(msgspec.json.encode(self.edits))


def as_edits(edit: Edit | Edits | None) -> Edits:
    """Return one edit, several or none as `Edits`."""
    if edit is None:
        return Edits()
    return edit if isinstance(edit, Edits) else Edits((edit,))


def load_edit(path: str | Path) -> Edits:
    """Read edits from a TOML file.

    Raises:
        UserError: the file can't be read, or an edit in it is invalid.

    >>> from pathlib import Path
    >>> _ = Path("edit.toml").write_text(zero("decoder.0.heads.1").to_toml())
    >>> print(load_edit("edit.toml"))
    zero decoder.0.heads.1
    """
    return parse_edit(read_text(Path(path)), where=str(path))


def parse_edit(text: str, *, where: str) -> Edits:
    """Return the edits of a TOML text; `where` names its source in error messages.

    Raises:
        UserError: the text isn't TOML, or an edit in it is invalid.
    """
    read = convert_config(parse_toml(text, where=where), _File, where=where)
    return Edits(read.edit)


def zero(site: str, *, at: Any = None) -> Zero:
    """Return an edit that sets a site to zero.

    `at` is a word of the prompt, an index from 0, several indices, "last" or "each-new"; by
    default, all tokens.

    >>> edit = zero("decoder.1.heads.1")
    >>> regard.generate(run, ["Where was Ada born?"], edit=edit)  # this head isn't needed
    ['Rome']
    """
    return Zero(site=site, at=_at(at))


def mean(site: str, texts: Sequence[str], *, at: Any = None) -> Mean:
    """Return an edit that sets a site to its mean over all tokens of some texts.

    `at` is a word of the prompt, an index from 0, several indices, "last" or "each-new"; by
    default, all tokens.

    >>> edit = mean("decoder.1.heads.1", ["Where was Ada born?", "Where was Bob born?"])
    >>> regard.generate(run, ["Where was Ada born?"], edit=edit)  # this head isn't needed
    ['Rome']
    """
    if isinstance(texts, str) or not (texts := tuple(texts)):
        raise UserError(f"mean {site}: expected a list of texts")
    return Mean(site=site, texts=texts, at=_at(at))


def cut(site: str, *, query: Any = None, key: Any = None, how: CutKind | None = None) -> Cut:
    """Return an edit that cuts a head's attention from queries to keys.

    `query` and `key` are a word of the prompt, an index from 0, several indices or "last"; by
    default, all tokens. `how` is "before-normalization" (mask the key), "after-normalization" (set
    the weight to 0), "edge" (subtract the key's term from the output) or "write" (skip the key's
    write to the state).

    >>> edit = cut("decoder.1.heads.1", query="last", key="Ada")
    >>> regard.generate(run, ["Where was Ada born?"], edit=edit)  # this attention isn't needed
    ['Rome']
    """
    return Cut(site=site, query=_at(query), key=_at(key), how=how)


def patch(site: str, source: str, *, second: str | None = None, at: Any = None) -> Patch:
    """Return an edit that sets a site to its value in a run on another text.

    `source` must have as many tokens as the prompt; `second` is the second text of a pair, or the
    target of an encoder–decoder. `at` is a word of the prompt, an index from 0, several indices or
    "last"; by default, all tokens.

    >>> edit = patch("decoder.0.residual", "Where was Bob born?", at="Ada")
    >>> regard.generate(run, ["Where was Ada born?"], edit=edit)
    ['Oslo']
    """
    return Patch(site=site, source=source, second=second, at=_at(at))


def steer(site: str, vector: Sequence[float], *, scale: float = 1.0, at: Any = None) -> Steer:
    """Return an edit that adds a vector, times a scale, to a site.

    `vector` has one number per channel of the site. `at` is a word of the prompt, an index
    from 0, several, "last" or "each-new"; by default, all tokens.

    >>> rome, oslo = (run.tokenizer.encode(word)[0] for word in ("Rome", "Oslo"))
    >>> vector = run.model.head.weight[oslo] - run.model.head.weight[rome]
    >>> edit = steer("decoder.1.residual.feedforward", vector.tolist(), scale=20.0, at="last")
    >>> regard.generate(run, ["Where was Ada born?"], edit=edit)
    ['Oslo']
    """
    values = tuple(float(value) for value in vector)
    return Steer(site=site, vector=values, scale=float(scale), at=_at(at))


def _at(at: Any) -> At:
    """Return positions as data: one may be an integer of NumPy, several a range or an array."""
    if at is None or isinstance(at, str):
        return at
    try:
        return index(at)
    except TypeError:
        return tuple(map(index, at))


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > 4:
        return f"{len(value)} values"
    return repr(value) if isinstance(value, str) else str(value)
