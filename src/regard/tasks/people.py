"""People of the fictional world whom place and profession tell apart."""

from regard.runs.config_tasks import MOST_PEOPLE
from regard.tasks import names
from regard.tasks.world import Person, WorldConfig, make_world


def distinct_people(seed: int, n: int) -> list[Person]:
    """People with a profession, no two of whom have the same place and profession.

    At most MOST_PEOPLE of them are sure to be found.
    """
    assert n <= MOST_PEOPLE
    everyone = WorldConfig(
        people=len(names.FIRST_NAMES) * len(names.LAST_NAMES),
        unseen=0,
        places=len(names.PLACES),
        skew=0,
        biographies=1,
        seed=seed,
    )
    found: dict[tuple[str, str], Person] = {}
    for person in make_world(everyone).people:
        if "profession" in person.facts:
            found.setdefault((person.place, person.facts["profession"]), person)
    return list(found.values())[:n]
