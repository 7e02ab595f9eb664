"""Questions before the sliders: a prediction of what their numbers will show."""

from collections.abc import Mapping
from dataclasses import dataclass

from regard.courses import Option


@dataclass(frozen=True)
class Prediction:
    """A question, and options with their reasons."""

    question: str
    options: tuple[Option, ...]


def _right(text: str, why: str) -> Option:
    return Option(text=text, right=True, why=why)


def _wrong(text: str, why: str) -> Option:
    return Option(text=text, right=False, why=why)


PREDICTIONS: Mapping[str, Prediction] = {
    "averaging": Prediction(
        "With $t = 8$, the number of keys grows from 10 to 1000. How much weight do the other keys "
        "get together?",
        (
            _wrong("Still less than 1 %", "Each gets little, but there are 998 of them."),
            _right("About 14 %", "It is $998 / (2e^8 + 998)$."),
            _wrong("More than half", "For this, $n - 2$ must exceed $2e^8$, about 6,000."),
        ),
    ),
    "noisy-keys-one-head": Prediction(
        r"With $n = 10$ and $t = 8$, the key of $v_a$ gets longer by half, $\gamma = 1.5$. What is "
        "the weight of $v_a$ with one head?",
        (
            _wrong("One half", "The two keys share one softmax, and their scores differ."),
            _wrong("Three fifths", r"The factor $\gamma$ is in the exponent, not in the weight."),
            _right("Nearly 1", r"The scores are 12 and 8, and $\sigma(4) \approx 0.98$."),
        ),
    ),
    "random-heads": Prediction(
        "With $n = 20$ tokens, the width falls from 64 to 8. How much weight does a query give its "
        "own key?",
        (
            _wrong("Nearly 1, as before", r"Its score is $\sqrt{h}$, which falls from 8 to 2.8."),
            _right("Less than half", "The other 19 keys together get more."),
            _wrong("One twentieth", "Its score is still above that of the others."),
        ),
    ),
    "complexity": Prediction(
        "The width is 64. At which number of tokens do attention and the projections take equally "
        "many multiplications?",
        (
            _wrong("At 64", "Attention takes $2n^2 h$ there, two thirds of $3nh^2$."),
            _right("At 96", "$2n^2 h = 3nh^2$ at $n = 1.5h$."),
            _wrong("At 4096", "Attention takes 43 times as many there."),
        ),
    ),
    "fourier-features": Prediction(
        "Entries have unit variance, and there are 256 waves. The width grows from 16 to 64. How "
        "does the relative error of the kernel change?",
        (
            _wrong("It falls", "It falls only if the norms of queries and keys are fixed."),
            _wrong("It doubles", r"It isn't proportional to $\sqrt{D}$."),
            _right("It grows more than tenfold", r"It is of the order of $e^{\sqrt{D}}$."),
        ),
    ),
    "vanishing-and-exploding": Prediction(
        r"The spectral radius is 0.9 and the largest singular value 2. What happens to the "
        "gradient over 1, 10 and 100 steps?",
        (
            _wrong("It falls from the first step on", "One step multiplies it by up to 2."),
            _wrong("It grows without end", "The radius is below 1, which decides in the end."),
            _right("It grows, and then vanishes", "2 and 6 after 1 and 10 steps, then 0.005."),
        ),
    ),
    "relative-bias": Prediction(
        "There are 4 heads, and distances are clipped at 4. The number of tokens doubles from 16. "
        "Which number of parameters stays the same?",
        (
            _wrong("That of each distance", "It grows from 31 to 63 per head."),
            _right("That of the clipped table", "It is $(2k + 1)m = 36$, whatever $T$ is."),
            _wrong("Both", "Without clipping, each new distance has a parameter."),
        ),
    ),
}
"""Predictions by study: one for each slider."""
