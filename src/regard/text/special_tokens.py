"""Special tokens: the ids of a vocabulary that have a role instead of a text."""

from msgspec import Struct
from msgspec.structs import force_setattr

from regard.errors import UserError

ROLES = ("pad", "bos", "eos", "sep", "cls", "mask", "unk")
"""As Hugging Face names them, in `pad_token` and `pad_token_id`."""


class SpecialTokens(Struct, frozen=True, kw_only=True):
    """The id of each role, anywhere in the vocabulary; one id may have several roles."""

    pad: int | None = None
    """Fills up rows."""
    bos: int | None = None
    """Begins a text."""
    eos: int | None = None
    """Ends a text."""
    sep: int | None = None
    """Separates two texts."""
    cls: int | None = None
    """Begins a text that is classified."""
    mask: int | None = None
    """Stands for a hidden token."""
    unk: int | None = None
    """Stands for text that the vocabulary lacks."""
    stop_ids: tuple[int, ...] = ()
    """Each ends a generated text. Default: eos, or else sep."""
    decoder_start_id: int | None = None
    """Begins the target of an encoder-decoder. Default: bos, or else cls or pad."""

    def __post_init__(self) -> None:
        end = _first(self.eos, self.sep)
        if not self.stop_ids and end is not None:
            force_setattr(self, "stop_ids", (end,))
        if self.decoder_start_id is None:
            force_setattr(self, "decoder_start_id", _first(self.bos, self.cls, self.pad))

    @property
    def ids(self) -> frozenset[int]:
        """All special ids."""
        named = (*(getattr(self, role) for role in ROLES), *self.stop_ids, self.decoder_start_id)
        return frozenset(i for i in named if i is not None)

    @property
    def padding(self) -> int:
        """The id that fills up rows: pad, or else 0, as it is masked anyway."""
        return 0 if self.pad is None else self.pad

    def require(self, role: str) -> int:
        """Return the id of a role.

        Raises:
            UserError: there is none.
        """
        found: int | None = getattr(self, role)
        if found is None:
            raise UserError(f"the tokenizer has no {role} token; choose a tokenizer that has one")
        return found


def _first(*ids: int | None) -> int | None:
    return next((i for i in ids if i is not None), None)
