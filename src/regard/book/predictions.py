"""Questions before sliders: a prediction of what they will show."""

from collections.abc import Mapping
from dataclasses import dataclass

from regard.courses import Option


@dataclass(frozen=True)
class Prediction:
    """A question, and options with their reasons."""

    question: str
    options: tuple[Option, ...]


def right(text: str, why: str) -> Option:
    """Return the right option, with its reason."""
    return Option(text=text, right=True, why=why)


def wrong(text: str, why: str) -> Option:
    """Return a wrong option, with the reason against it."""
    return Option(text=text, right=False, why=why)


PREDICTIONS: Mapping[str, Prediction] = {
    "copying": Prediction(
        "With 10 keys and a margin of 8, one key gets 99.7 % of the weight. There are 100 times as "
        "many keys. Which margin keeps this weight?",
        (
            wrong("8, as before", "The other keys then get a quarter of the weight."),
            right("About 12.7", r"The margin grows by $\ln(999 / 9) \approx 4.7$."),
            wrong("800", "The weights of the other keys fall exponentially with the margin."),
        ),
    ),
    "averaging": Prediction(
        "With $t = 8$, the number of keys grows from 10 to 1000. How much weight do the other keys "
        "get together?",
        (
            wrong("Still less than 1 %", "Each gets little, but there are 998 of them."),
            right("About 14 %", "It is $998 / (2e^8 + 998)$."),
            wrong("More than half", "For this, $n - 2$ must exceed $2e^8$, about 6,000."),
        ),
    ),
    "noisy-keys-one-head": Prediction(
        r"With $n = 10$ and $t = 8$, the key of $v_a$ gets longer by half, $\gamma = 1.5$. What is "
        "the weight of $v_a$ with one head?",
        (
            wrong("One half", "The two keys share one softmax, and their scores differ."),
            wrong("Three fifths", r"The factor $\gamma$ is in the exponent, not in the weight."),
            right("Nearly 1", r"The scores are 12 and 8, and $\sigma(4) \approx 0.98$."),
        ),
    ),
    "random-heads": Prediction(
        "With $n = 20$ tokens, the width falls from 64 to 8. How much weight does a query give its "
        "own key?",
        (
            wrong("Nearly 1, as before", r"Its score is $\sqrt{h}$, which falls from 8 to 2.8."),
            right("Less than half", "The other 19 keys together get more."),
            wrong("One twentieth", "Its score is still above that of the others."),
        ),
    ),
    "scale": Prediction(
        r"Entries have mean 0 and variance 1. The width grows from 64 to 256. What happens to the "
        r"standard deviation of $q \cdot k$?",
        (
            wrong("It stays the same", r"That of $q \cdot k / \sqrt{h}$ does."),
            right("It doubles", r"It is $\sqrt{h}$, so that it grows from 8 to 16."),
            wrong("It grows fourfold", "The variance does."),
        ),
    ),
    "complexity": Prediction(
        "The width is 64. At which number of tokens do attention and the projections take equally "
        "many multiplications?",
        (
            wrong("At 64", "Attention takes $2n^2 h$ there, two thirds of $3nh^2$."),
            right("At 96", "$2n^2 h = 3nh^2$ at $n = 1.5h$."),
            wrong("At 4096", "Attention takes 43 times as many there."),
        ),
    ),
    "order-of-products": Prediction(
        "There are 128 features, and values have width 64. From which number of tokens on does the "
        "product of keys and values first take fewer multiplications?",
        (
            wrong("From 64", "The second order takes 1.3 times as many there."),
            right("From 86", "$2md / (m + d)$ is 85.3."),
            wrong("From 1024", "The first order takes 12 times as many there."),
        ),
    ),
    "truncation": Prediction(
        "A map of 64 tokens has rank 40. Do its factors save multiplications?",
        (
            wrong("Yes, since 40 is less than 64", "There are two products with factors."),
            right("No", "$2nkh$ is less than $n^2 h$ only for $k < n / 2$."),
            wrong("It depends on the width of the values", "Both grow in proportion to $h$."),
        ),
    ),
    "causal-sums": Prediction(
        "A head has width 16, and its feature map 16 features. From which number of tokens on are "
        "the running sums smaller than the cache of keys and values?",
        (
            right("From 9", r"The sums have $16 \cdot 17$ numbers, the cache 32 per token."),
            wrong("From 17", "The cache holds two vectors of each token."),
            wrong("From 272", "That is the number of entries of the sums."),
        ),
    ),
    "fourier-features": Prediction(
        "Entries have unit variance, and there are 256 waves. The width grows from 16 to 64. How "
        "does the relative error of the kernel change?",
        (
            wrong("It falls", "It falls only if the norms of queries and keys are fixed."),
            wrong("It doubles", r"It isn't proportional to $\sqrt{D}$."),
            right("It grows more than tenfold", r"It is of the order of $e^{\sqrt{D}}$."),
        ),
    ),
    "favor": Prediction(
        "A key is the negative of a query. Which features estimate their kernel exactly?",
        (
            wrong("Trigonometric ones", "They are exact for equal vectors."),
            right("Positive and hyperbolic ones", "Their error is 0 at $x + y = 0$."),
            wrong("None, without infinitely many directions", "One direction is enough."),
        ),
    ),
    "vanishing-and-exploding": Prediction(
        r"The spectral radius is 0.9 and the largest singular value 2. What happens to the "
        "gradient over 1, 10 and 100 steps?",
        (
            wrong("It falls from the first step on", "One step multiplies it by up to 2."),
            wrong("It grows without end", "The radius is below 1, which decides in the end."),
            right("It grows, and then vanishes", "2 and 6 after 1 and 10 steps, then 0.005."),
        ),
    ),
    "relative-bias": Prediction(
        "There are 4 heads, and distances are clipped at 4. The number of tokens doubles from 16. "
        "Which number of parameters stays the same?",
        (
            wrong("That of each distance", "It grows from 31 to 63 per head."),
            right("That of the clipped table", "It is $(2k + 1)m = 36$, whatever $T$ is."),
            wrong("Both", "Without clipping, each new distance has a parameter."),
        ),
    ),
    "adding": Prediction(
        "The width grows from 256 to 1024. What happens to the cross terms of word and position, "
        r"compared with $x_1 \cdot x_2$ of two different words?",
        (
            wrong("They become half as large", r"They do compared with $x \cdot x$ of one word."),
            right("The ratio stays the same", r"Both grow as $\sqrt{d}$."),
            wrong("They become twice as large", r"Both grow as $\sqrt{d}$."),
        ),
    ),
    "shifting": Prediction(
        "Frequencies are counted from 0, and the width grows from 64 to 512. What happens to the "
        "longest wavelength?",
        (
            wrong("It grows eightfold", r"It is never above $10000 \cdot 2 \pi$."),
            right("It grows by less than a third", "From 75 % to 96 % of its limit."),
            wrong("It stays the same", "The shortest wavelength does."),
        ),
    ),
    "receptive-field": Prediction(
        "There are 100 inputs and 2 heads. How many layers are needed until a node can depend on "
        "all inputs?",
        (
            wrong("2", "A node has $3^2 = 9$ paths after 2 layers."),
            right("5", "$3^4 = 81$ is less than 100, and $3^5 = 243$ more."),
            wrong("50", "The number of paths grows exponentially with the layers."),
        ),
    ),
}
"""Predictions by study: one for each slider."""
