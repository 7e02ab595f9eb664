"""Answers about people who are absent from the text: signals of doubt, guesses, and their bias."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import eq
from statistics import fmean
from textwrap import shorten

import numpy as np

from regard.errors import UserError
from regard.evaluation.answers import Answer
from regard.evaluation.evaluate import signal_aurocs
from regard.evaluation.report import attention_of
from regard.experiments.recall import WORDINGS
from regard.explorer.page import serialize
from regard.metrics import Interval, auroc, risk_coverage
from regard.runs.run import Run
from regard.studies.figure import Line, Panel, bar_chart, chart, figure, histogram, series
from regard.studies.finding import Measurements, Table, at_least, at_most, equal, named, table
from regard.studies.knowledge import fictional
from regard.studies.knowledge.fictional import Correlation, People, Steps
from regard.studies.study import EvidenceParts, Seed, study
from regard.tasks.examples import Example
from regard.tasks.world import QUESTIONS, Person, World

SIGNALS = {"probability": "confidence", "familiarity": "familiarity", "agreement": "agreement"}
"""Names here, and in an answer: the confidence of an uncalibrated run is the probability."""

Aurocs = Mapping[str, Interval]
"""AUROC by signal."""
Kinds = Mapping[str, Sequence[Answer]]
"""Right answers, wrong answers, and answers about absent people."""


@study(trains=True)
def recalled(people: People = 160, steps: Steps = 800, seed: Seed = 0) -> EvidenceParts:
    r"""Can right answers be distinguished from wrong ones, and recalled from invented ones?

    Not by the answers: each is a place that exists. But signals of the model separate them, a
    different one for each kind of doubt. Familiarity of the name separates mentioned from absent
    people, and says little about right and wrong. The probability of the answer separates right
    from wrong better than chance, and says little about absence.

    $$ \mathrm{AUROC} = P(s_{\text{trusted}} > s_{\text{doubted}}) + \tfrac{1}{2}
    P(s_{\text{trusted}} = s_{\text{doubted}}) $$

    The model answers questions about people whom the text mentions, and about absent people, whose
    first and last names occur in the text, but not together. Familiarity is the log-probability of
    the name at the start of a text.

    Figure. Above: right, wrong and invented answers by probability and by familiarity. Below left:
    AUROC of each signal for both kinds of doubt, with 95 % intervals; dotted: chance. Below right:
    risk against coverage for mentioned people.
    """
    world = fictional.small_world(people, 0.0, seed)
    run = fictional.pretrained(world, fictional.small_recipe(steps, seed))
    questions = (world.questions(group) for group in ("text_only", "absent"))
    mentioned, absent = (fictional.answers(run, each, WORDINGS) for each in questions)
    kinds = {
        "right": [a for a in mentioned if a.correct],
        "wrong": [a for a in mentioned if not a.correct],
        "absent": absent,
    }
    absence = named_aurocs(mentioned, absent)
    wrongness = named_aurocs(kinds["right"], kinds["wrong"])
    places = {person.place for person in world.people}
    yield from judged_signals(kinds, places, absence, wrongness)
    yield _examples(kinds)
    aurocs = {"mentioned / absent": absence} | ({"right / wrong": wrongness} if wrongness else {})
    yield figure(
        *(_histogram(kinds, signal) for signal in ("probability", "familiarity")),
        bar_chart(aurocs, Line(y=0.5), y="AUROC", y_limits=(0, 1.05)),
        _risk([*kinds["right"], *kinds["wrong"]]),
        columns=2,
    )
    sides = [
        attention_of(named(run, name), answers[0], fictional.CPU)
        for name, answers in (("text only", mentioned), ("absent", absent))
    ]
    yield serialize("while answering about two people", sides, [(0, 0, 0)])


def _examples(kinds: Kinds) -> Table:
    rows = []
    for kind, answers in kinds.items():
        for one in answers[:4]:
            who = one.question.removeprefix("Where was ").removesuffix(" born?")
            scores = [one.scores[name] for name in SIGNALS.values()]
            rows.append((kind, who, shorten(one.answered, 24), one.expected or "?", *scores))
    return table(["kind", "person", "answer", "true", *SIGNALS], rows)


def judged_signals(
    kinds: Kinds, places: set[str], absence: Aurocs, wrongness: Aurocs
) -> Measurements:
    """Yield the measurements that the claim depends on."""
    right, wrong, absent = kinds.values()
    invented = sum(answer.answered in places for answer in absent) / len(absent)
    share = len(right) / (len(right) + len(wrong))
    by_place = by_text([*right, *wrong], absent)
    yield at_least("accuracy on people in the text only", share, 0.5)
    yield at_least("invented answers that name a place", invented, 0.9)
    yield at_most("mentioned / absent: AUROC of the answer's text", by_place, 0.7)
    yield at_least("mentioned / absent: AUROC of familiarity", absence["familiarity"].value, 0.9)
    yield at_most("mentioned / absent: AUROC of probability", absence["probability"].value, 0.75)
    yield at_least("right / wrong: answers in the smaller group", min(len(right), len(wrong)), 2)
    if wrongness:
        yield at_least("right / wrong: AUROC of probability", wrongness["probability"].value, 0.55)
        yield at_most("right / wrong: AUROC of familiarity", wrongness["familiarity"].value, 0.75)


def named_aurocs(trusted: Sequence[Answer], doubted: Sequence[Answer]) -> Aurocs:
    """Return the AUROC of each signal by its name here; none of fewer than two answers."""
    found = signal_aurocs(trusted, doubted)
    return {name: found[score] for name, score in SIGNALS.items()} if found else {}


def by_text(mentioned: Sequence[Answer], absent: Sequence[Answer]) -> float:
    """Return the AUROC of the place alone, by its frequency among the answers."""
    said = Counter(a.answered for a in (*mentioned, *absent))
    found = auroc(*([said[a.answered] for a in group] for group in (mentioned, absent)))
    return max(found, 1 - found)


def _histogram(kinds: Kinds, signal: str) -> Panel:
    values = {kind: [a.scores[SIGNALS[signal]] for a in answers] for kind, answers in kinds.items()}
    every = np.concatenate(list(values.values()))
    edges = np.linspace(every.min(), every.max() + 1e-9, 21).tolist()
    steps = [histogram(several, edges, kind) for kind, several in values.items()]
    return chart(*steps, x=signal, y="answers")


def _risk(answers: Sequence[Answer]) -> Panel:
    correct, lines = [answer.correct for answer in answers], []
    for signal, name in SIGNALS.items():
        curve = risk_coverage([answer.scores[name] for answer in answers], correct)
        lines.append(series(*curve, f"by {signal}"))
    return chart(*lines, x="share of questions answered", y="share of wrong answers")


HOME, CHANCE = "home of the name", "by chance"
"""Share of answers that are the home of the last name, and of answers permuted at random."""
COMMON, RIGHT = "most frequent place", "right"
CONFIDENCE = "mean probability"
Guesses = dict[str, float]
"""Shares of the answers about absent people, and their mean probability under the model."""


@study(trains=True)
def fallback(
    correlation: Correlation = 0.8, people: People = 160, steps: Steps = 800, seed: Seed = 0
) -> EvidenceParts:
    r"""How does a model answer about people who are absent from the text?

    It guesses from the name and from frequencies, with high confidence. If last names are
    informative, the guess is often right; if they aren't, it guesses in the same way.

    $$ P(\text{place} \mid \text{last name}) = c\,[\text{home}] + (1 - c)\,P(\text{place}) $$

    The home of a last name is the most frequent birthplace of the people in the text who have it.
    In one world, most people were born there; in the other, names and places are independent. The
    share of answers that are the home of the name is compared with the same share after a random
    permutation of the answers among these people.

    Figure. Answers about absent people in two worlds. If names are informative, most answers are
    the home of the name, and many are right; if they aren't, fewer are the home of the name, and
    few are right.
    """
    found = {c: _guesses(people, c, steps, seed) for c in (0.0, correlation)}
    yield from judged_guesses(found[0.0], found[correlation])
    shares = {
        f"correlation {c:g}": {name: guesses[name] for name in (HOME, CHANCE, COMMON, RIGHT)}
        for c, guesses in found.items()
    }
    yield bar_chart(shares, y="share of answers", y_limits=(0, 1))


def judged_guesses(other: Guesses, informative: Guesses) -> Measurements:
    """Yield the measurements of both worlds that the claim depends on."""
    for names, one, low in (("informative", informative, 0.2), ("other", other, 0.1)):
        more = one[HOME] - one[CHANCE]
        yield at_least(f"{names} names: homes of the name minus chance", more, low)
        yield at_least(f"{names} names: mean probability of the answers", one[CONFIDENCE], 0.5)
    gain = informative[RIGHT] - other[RIGHT]
    yield at_least("accuracy, informative minus other names", gain, 0.2)
    uniform = 1 / fictional.PLACES
    yield at_least("other names: share of the most frequent place", other[COMMON], 2 * uniform)
    yield at_most("other names: accuracy", other[RIGHT], 0.35)


def counted(
    answers: Sequence[str], homes_of: Sequence[str], truths: Sequence[str], common: str
) -> Guesses:
    """Return shares of answers, each about a person whose name has a known home."""
    n, said = len(answers), Counter(answers)
    return {
        HOME: fmean(map(eq, answers, homes_of)),
        CHANCE: fmean(said[home] for home in homes_of) / n,
        COMMON: said[common] / n,
        RIGHT: fmean(map(eq, answers, truths)),
    }


def _guesses(people: int, correlation: float, steps: int, seed: int) -> Guesses:
    world = fictional.small_world(people, correlation, seed)
    run = fictional.pretrained(world, fictional.small_recipe(steps, seed))
    strangers, home = world.group("absent"), fictional.homes(world)
    answers = fictional.answers(run, world.questions("absent"))
    shares = counted(
        [one.answered for one in answers],
        [home[person.name] for person in strangers],
        [person.place for person in strangers],
        fictional.commonest(world.group("qa_train"))[0],
    )
    return shares | {CONFIDENCE: fmean(one.confidence for one in answers)}


IN_DATA, PROBABILITY, ANSWERED = "in the data", "probability", "best answers"
ORPHAN, CHILD = "home, without parent", "home, with parent"
"""Shares and probabilities, as in the figure of `bias`."""


@study(trains=True)
def bias(
    correlation: Correlation = 0.8, people: People = 160, steps: Steps = 800, seed: Seed = 0
) -> EvidenceParts:
    r"""Where does a model's bias come from?

    From its data and from its parent model, each of which is sufficient alone, and from the metric,
    which amplifies what is frequent in the data.

    $$ \operatorname{argmax}_y P(y) = \text{the most frequent}, \quad \text{whatever its share} $$

    All questions are about people who occur in no text, so only bias can decide the answer. Data
    and metric are those of a model trained on questions alone; sampled answers would preserve the
    share.

    Parent: a model is trained on a text and questions in which last names indicate places. It is
    then finetuned on questions about people who were not born at the home of their name, and
    compared with a model trained on these questions alone.

    Figure. From the left: share of {place} in the data, its mean probability, and its share among
    best answers; probability of the name's home without a parent model, and with a parent whose
    data had this bias.
    """
    world, even = (fictional.small_world(people, c, seed) for c in (correlation, 0.0))
    recipe = fictional.small_recipe(steps, seed)
    place, share = fictional.commonest(even.group("qa_train"))
    given = fictional.place_probabilities(fictional.from_scratch(even, recipe), even)
    fair = _fair_questions(world, people, correlation)
    child = fictional.finetuned(fictional.pretrained(world, recipe), fair)
    orphan = fictional.from_scratch(world, recipe, fair)
    common = fictional.mentioned_places(even).index(place)
    shares = {
        IN_DATA: share,
        PROBABILITY: float(given[:, common].mean()),
        ANSWERED: float((given.argmax(1) == common).double().mean()),
        ORPHAN: _at_home(orphan, world),
        CHILD: _at_home(child, world),
    }
    yield from judged_shares(shares)
    yield figure(bar_chart({"": shares}, y="share", y_limits=(0, 1)), place=place)


def judged_shares(shares: Mapping[str, float]) -> Measurements:
    """Yield the measurements that the claim depends on."""
    share, more = shares[IN_DATA], shares[ANSWERED] - shares[IN_DATA]
    kept = shares[CHILD] - shares[ORPHAN]
    yield equal("data: probability of the most frequent place", shares[PROBABILITY], share, 0.1)
    yield at_least("metric: share among best answers minus share in the data", more, 0.05)
    yield at_least("parent: P(home of the name), with minus without parent", kept, 0.5)


def _fair_questions(world: World, people: int, correlation: float) -> list[Example]:
    """Return the questions about people in QA training who were born elsewhere.

    Raises:
        UserError: there are none.
    """
    fair = [p.question(wording) for p in born_elsewhere(world) for wording in QUESTIONS]
    if not fair:
        raise UserError(
            f"bias: people: of {people}, with a correlation of {correlation:g}, nobody in QA "
            "training was born elsewhere than at the home of the last name; choose more people, "
            "or a smaller correlation"
        )
    return fair


def born_elsewhere(world: World) -> list[Person]:
    """Return the people in QA training who were not born at the home of their last name."""
    home = fictional.homes(world)
    return [p for p in world.group("qa_train") if p.place != home[p.name]]


def _at_home(run: Run, world: World) -> float:
    """Return the mean probability of the home of the name, for absent people."""
    home, places = fictional.homes(world), fictional.mentioned_places(world)
    given = fictional.place_probabilities(run, world)
    own = [places.index(home[person.name]) for person in world.group("absent")]
    return float(given[range(len(own)), own].mean())
