"""Bias that comes from the data, from the parent model, and from the metric."""

from collections.abc import Mapping

from regard.errors import UserError
from regard.runs.run import Run
from regard.studies.figure import bar_chart, figure
from regard.studies.finding import Measurements, at_least, equal
from regard.studies.knowledge import fictional
from regard.studies.knowledge.fictional import Correlation, People, Steps
from regard.studies.study import EvidenceParts, Seed, study
from regard.tasks.examples import Example
from regard.tasks.world import QUESTIONS, Person, World

IN_DATA, PROBABILITY, ANSWERED = "in the data", "probability", "best answers"
"""Share of the most frequent place in QA training, mean probability, and share of answers."""
ORPHAN, CHILD = "home, without parent", "home, with parent"
"""Mean probability of the name's home, by a model trained on questions without this bias, and by
one finetuned on them."""
Shares = Mapping[str, float]
"""By name; all answers are about absent people."""


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
    compared with a model trained on these questions alone. (With `correlation=0` the difference is
    smaller, but not 0: about four people share each last name.)

    Figure. From the left: share of {place} in the data, its mean probability, and its share among
    best answers; probability of the name's home without a parent model, and with a parent whose
    data had this bias.
    """
    world, even = (fictional.small_world(people, c, seed) for c in (correlation, 0.0))
    recipe = fictional.small_recipe(steps, seed)
    place, share = fictional.commonest(even.group("qa_train"))
    names = fictional.mentioned_places(even)
    given = fictional.place_probabilities(
        fictional.from_scratch(even, recipe), even.group("absent"), names
    )
    fair = _fair_questions(world, people, correlation)
    child = fictional.finetuned(fictional.pretrained(world, recipe), fair)
    orphan = fictional.from_scratch(world, recipe, fair)
    common = names.index(place)
    shares = {
        IN_DATA: share,
        PROBABILITY: float(given[:, common].mean()),
        ANSWERED: float((given.argmax(1) == common).double().mean()),
        ORPHAN: _at_home(orphan, world),
        CHILD: _at_home(child, world),
    }
    yield from judged(shares)
    yield figure(bar_chart({"": shares}, y="share", y_limits=(0, 1)), place=place)


def judged(shares: Shares) -> Measurements:
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
    return [p for p in world.group("qa_train") if p.place != home[fictional.last_name(p)]]


def _at_home(run: Run, world: World) -> float:
    """Return the mean probability of the home of the name, for absent people."""
    home, strangers = fictional.homes(world), world.group("absent")
    names = fictional.mentioned_places(world)
    given = fictional.place_probabilities(run, strangers, names)
    own = [names.index(home[fictional.last_name(person)]) for person in strangers]
    return float(given[range(len(own)), own].mean())
