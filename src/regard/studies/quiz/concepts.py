"""Sixteen concepts, each with a check that runs."""

from typing import Annotated

from msgspec import Meta

from regard.drawing import heat_map, panels
from regard.models.config import MaskedLMHeadConfig
from regard.studies.finding import Drawing, Evidence, drawing, table
from regard.studies.quiz.architectures import (
    architecture_and_weights,
    classifying,
    completing,
    dimensions,
    heads,
)
from regard.studies.quiz.bias import sources_of_bias
from regard.studies.quiz.checked import DECODER, ENCODER, Checked, Draw, influence
from regard.studies.quiz.probabilities import conditional, next_tokens
from regard.studies.quiz.recurrence import (
    NEAR,
    influence_curves,
    long_inputs,
    many_to_one,
    not_a_number,
    the_crab,
)
from regard.studies.quiz.texts import batching, foreign_ids, no_labels, pipeline
from regard.studies.study import Seed, study


@study(
    asked=[f"jhu-hw5 1.{i}" for i in range(1, 17)],
    question="Sixteen questions about language models: what are the answers, and how can they be"
    " verified?",
    claim="Each answer passes a check that runs.",
    formula=r"\sum_{y_1, \dots, y_T} \prod_{t=1}^{T} P(y_t \mid y_1, \dots, y_{t-1}) = 1",
)
def concepts(
    tokens: Annotated[int, Meta(ge=2, le=4, description="tokens of questions 9 and 12")] = 4,
    length: Annotated[int, Meta(ge=2, le=4, description="length of their texts")] = 3,
    std: Annotated[float, Meta(ge=0, le=1, description="standard deviation of weights")] = 0.15,
    seed: Seed = 0,
) -> Evidence:
    """The course gives no answers to these questions. Here each has one, and small models that were
    never trained show it: what an architecture can't do, no training teaches it. A decoder's output
    at a position doesn't change with later tokens; an encoder's does. So one can be asked what
    comes next, and the other knows it already.

    Probabilities can be counted. Over all texts of a length, the products of P(y_t | y_<t) add up
    to 1: a language model gives a probability to every text. An encoder–decoder does so for every
    input x anew; over all x as well, the sum is the number of inputs. So it says nothing of how
    probable an input is.

    Question 13 asks for the difference that long inputs make. An RNN whose weights are small
    forgets its first token exponentially; a window drops it; attention divides its weight among
    the tokens, which costs 1/n. Where weights are large (std), an RNN need not forget, and the
    check fails.
    """
    draw = Draw(seed, std)
    checked = answered(draw, tokens, length)
    return Evidence(
        numbers=tuple(number for one in checked for number in one.numbers),
        figure=_drawn(draw),
        table=table(
            ["", "question", "answer", "checked by", "passes"],
            [
                (i, one.question, one.answer, one.how, "yes" if _passes(one) else "no")
                for i, one in enumerate(checked, 1)
            ],
        ),
    )


def answered(draw: Draw, tokens: int, length: int) -> list[Checked]:
    """All sixteen, in their order."""
    return [
        no_labels(draw),
        architecture_and_weights(draw),
        completing(draw),
        classifying(draw),
        many_to_one(draw),
        sources_of_bias(),
        pipeline(draw),
        dimensions(draw),
        next_tokens(draw, tokens, length),
        not_a_number(draw),
        the_crab(draw),
        conditional(draw, tokens, length),
        long_inputs(draw),
        heads(draw),
        batching(draw),
        foreign_ids(draw),
    ]


def _passes(checked: Checked) -> bool:
    return all(number.holds for number in checked.numbers)


def _drawn(draw: Draw) -> Drawing:
    ids = draw.ids(8)
    maps = {
        "encoder": influence(draw.model(ENCODER, MaskedLMHeadConfig()).body, ids),
        "decoder": influence(draw.model(DECODER).body, ids),
    }
    with panels(3, height=2.5, width=7.6) as (figure, (*left, right)):
        for axes, (name, seen) in zip(left, maps.items(), strict=True):
            heat_map(axes, (seen / seen.amax(1, keepdim=True).clamp(min=1e-9)).numpy())
            axes.set(title=name, xlabel="token that is changed")
        left[0].set_ylabel("state that changes")
        for name, curve in influence_curves(draw).items():
            right.plot((curve / curve[0].clamp(min=1e-9)).clamp(min=1e-12).numpy(), label=name)
        right.set(yscale="log", ylim=(1e-8, 10), title="reach", xlabel="tokens ago")
        right.axvline(NEAR, linestyle=":", color="C5", linewidth=1)
        right.legend(fontsize=8)
        return drawing(
            figure,
            "Which token changes which state: in an encoder each changes all, in a decoder only "
            "its own and later ones. To the right, how far the first token reaches: with attention "
            "to the end, in an RNN exponentially less, in a window four tokens.",
            name="concepts",
        )
