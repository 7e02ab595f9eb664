"""Sixteen concepts, each with a check that runs."""

from typing import Annotated

from msgspec import Meta

from regard.models.config import MaskedLMHeadConfig
from regard.studies.figure import Line, chart, figure, heat_map, series
from regard.studies.finding import EvidenceParts, table
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


@study()
def concepts(
    tokens: Annotated[int, Meta(ge=2, le=4)] = 4,
    length: Annotated[int, Meta(ge=2, le=4)] = 3,
    std: Annotated[float, Meta(ge=0, le=1)] = 0.15,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Sixteen questions about language models: what are the answers, and how can they be verified?

    Each answer passes a check that runs.

    $$ \sum_{y_1, \dots, y_T} \prod_{t=1}^{T} P(y_t \mid y_1, \dots, y_{t-1}) = 1 $$

    The course gives no answers to these questions. Here each has one, checked on small untrained
    models: what an architecture can't do, no training adds. A decoder's output at a position
    doesn't change with later tokens; an encoder's does. So a decoder can be asked for the next
    token, which an encoder has already seen.

    Probabilities are summed. Over all texts of a length, the products of P(y_t | y_<t) add up to 1:
    a language model gives a probability to every text. An encoder–decoder does so for every input x
    again; over all x as well, the sum is the number of inputs. So it models no probability of x.

    Question 13 is about long inputs. An RNN with small weights forgets its first token
    exponentially; a window drops it; attention divides its weight among the tokens, which costs
    1/n. With large weights (std), an RNN need not forget, and the check fails.

    Figure. Left and middle: influence of each token on each state. In an encoder each token changes
    all states, in a decoder only its own and later ones. Right: influence of the first token by
    distance. With attention it reaches the end, in an RNN it falls exponentially, in a window it
    ends after four tokens. Dotted: {near} tokens.

    Args:
        tokens: tokens of questions 9 and 12
        length: length of their texts
        std: standard deviation of weights
    """
    draw = Draw(seed, std)
    checked = answered(draw, tokens, length)
    for one in checked:
        yield from one.numbers
    rows = [
        (i, one.question, one.answer, one.how, "yes" if one.passes else "no")
        for i, one in enumerate(checked, 1)
    ]
    yield table(["", "question", "answer", "checked by", "passes"], rows)
    ids = draw.ids(8)
    bodies = {
        "encoder": draw.model(ENCODER, MaskedLMHeadConfig()).body,
        "decoder": draw.model(DECODER).body,
    }
    seen = {name: influence(body, ids) for name, body in bodies.items()}
    maps = {name: each / each.amax(1, keepdim=True).clamp(min=1e-9) for name, each in seen.items()}
    labels = {"x": "changed token", "y": "changed state", "unit": "influence"}
    reach = [
        series(range(len(curve)), (curve / curve[0].clamp(min=1e-9)).clamp(min=1e-12), name)
        for name, curve in influence_curves(draw).items()
    ]
    yield figure(
        *(heat_map(each, title=name, **labels) for name, each in maps.items()),
        chart(
            *reach,
            Line(x=NEAR),
            title="reach",
            x="tokens ago",
            y="influence",
            y_scale="log",
            y_limits=(1e-8, 10),
        ),
        near=NEAR,
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
