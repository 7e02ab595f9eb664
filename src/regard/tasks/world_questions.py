"""Closed-book questions about the fictional world, trained together with its biographies.

The experiment of `regard demo` as a single training run: the text states everyone's birthplace;
training questions are about half of the people, test questions about the other half.
"""

from collections.abc import Sequence

from regard.config import Positive
from regard.tasks.examples import Example, majority_answer
from regard.tasks.rng import generator, sample
from regard.tasks.split import Answers, Split, TextTaskConfig, numbered
from regard.tasks.world import QUESTIONS, World, WorldConfig, make_world
from regard.text.corpus import Document


class WorldQuestionsConfig(TextTaskConfig, frozen=True, tag_field="kind", tag="world"):
    """Where a person was born → the place, which only biographies in the training text state."""

    training: Positive = 1500
    """Number of training questions: three wordings for every second person."""
    test: Positive = 250
    """Number of test questions, about people who are in the text only."""
    people: Positive = 1000
    """Number of people with biographies."""
    places: Positive = 50
    """Number of places."""
    biographies: Positive = 5
    """Biographies per person, if `augment` is on."""
    augment: bool = True
    """Whether biographies have different wordings and repeat the name; otherwise, each person has
    one plain biography."""

    def __post_init__(self) -> None:
        self._world_config()  # raises
        others = self.people // 2
        asked = self.people - others
        if self.training > len(QUESTIONS) * asked:
            raise ValueError(
                f"training = {self.training}, but people = {self.people} have "
                f"{len(QUESTIONS) * asked} training questions: choose fewer, or more people"
            )
        if self.test > others:
            raise ValueError(
                f"test = {self.test}, but of people = {self.people}, only {others} are in the "
                "text only: choose fewer, or more people"
            )

    def make(self, seed: int) -> Split:
        """Draw questions; the world itself is that of the task's seed."""
        world, draw = self._world(), generator(self.seed, seed, "world")
        training = sample(draw, world.questions("qa_train", QUESTIONS), self.training)
        test = sample(draw, world.questions("text_only"), self.test)
        return numbered("world", [*training, *test], self.training)

    def documents(self) -> list[Document]:
        """Return the biographies of all people."""
        texts = enumerate(self._world().documents, start=1)
        return [Document(text, f"world biography {number}") for number, text in texts]

    def baselines(self, training: Sequence[Example], test: Sequence[Example]) -> Answers:
        return {"majority": [majority_answer(training)] * len(test)}

    def _world(self) -> World:
        return make_world(self._world_config())

    def _world_config(self) -> WorldConfig:
        return WorldConfig(
            people=self.people,
            absent=0,
            places=self.places,
            biographies=self.biographies,
            augment=self.augment,
            seed=self.seed,
        )
