"""The study wrong-options."""

import torch

from regard.courses import all_parts
from regard.studies.quiz.checks import Draw
from regard.studies.quiz.options import REFUTATIONS, gradients, next_probabilities


def test_each_question_is_one_that_a_part_shows() -> None:
    shown = {part.number for part in all_parts() if "wrong-options" in part.studies}
    assert {f"1.{question}" for question in REFUTATIONS} == shown


def test_each_prefix_has_a_distribution() -> None:
    draw = Draw(3, 0.5)
    rows = next_probabilities(draw)
    assert rows.shape == (draw.tokens**2, draw.tokens)
    torch.testing.assert_close(rows.sum(-1), torch.ones(draw.tokens**2, dtype=torch.float64))
    assert (rows > 0).all()


def test_finite_differences_leave_the_weights_as_they_were() -> None:
    first, second = gradients(Draw(1, 0.3)), gradients(Draw(1, 0.3))
    for name, (by_autograd, by_differences) in first.items():
        assert by_autograd.abs().max() > 1e-3
        torch.testing.assert_close(by_autograd, by_differences, rtol=0, atol=1e-7)
        assert torch.equal(by_differences, second[name][1])
