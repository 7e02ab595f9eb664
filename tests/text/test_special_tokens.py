"""Roles, and what follows from them where nothing else is given."""

import pytest

from regard.errors import UserError
from regard.text.special_tokens import SpecialTokens


@pytest.mark.parametrize(
    ("special", "stop_ids", "start"),
    [
        (SpecialTokens(), (), None),
        (SpecialTokens(bos=7, eos=9), (9,), 7),
        (SpecialTokens(cls=3, sep=5), (5,), 3),  # a BERT that generates
        (SpecialTokens(pad=0, eos=1), (1,), 0),  # T5
        (SpecialTokens(eos=1, stop_ids=(1, 4), decoder_start_id=8), (1, 4), 8),
    ],
)
def test_stop_and_start_follow_from_the_roles(
    special: SpecialTokens, stop_ids: tuple[int, ...], start: int | None
) -> None:
    assert (special.stop_ids, special.decoder_start_id) == (stop_ids, start)


def test_all_special_ids_are_known() -> None:
    special = SpecialTokens(pad=0, bos=7, eos=7, stop_ids=(4,), decoder_start_id=8)
    assert special.ids == {0, 4, 7, 8}


def test_any_id_pads_as_padding_is_masked() -> None:
    assert (SpecialTokens(pad=5).padding, SpecialTokens(eos=5).padding) == (5, 0)


def test_a_missing_role_is_named() -> None:
    assert SpecialTokens(sep=0).require("sep") == 0
    with pytest.raises(UserError, match="no mask token"):
        SpecialTokens(sep=0).require("mask")
