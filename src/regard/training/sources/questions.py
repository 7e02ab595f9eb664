"""Questions with answers, without any text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.data.batch import WeightedDataset
from regard.data.causal import Questions
from regard.errors import UserError
from regard.runs.recipe import Recipe
from regard.runs.recipes import find_recipe
from regard.runs.run import Run, describe_origin
from regard.runs.start import finetuning_recipe, require_same
from regard.tasks.examples import (
    Example,
    Examples,
    answered_examples,
    encode_pairs,
    texts_of,
    with_ascii_questions,
)
from regard.text.tokenizer import Tokenizer, train_tokenizer
from regard.training.sources.base import (
    Datasets,
    Prepared,
    Source,
    hold_out,
    require_continuing,
    require_no_task,
)


@dataclass(frozen=True)
class QuestionSource(Source):
    """Questions with answers, or the file of them."""

    questions: Examples
    stage: str = "questions"
    usual: Recipe | str = "questions"
    unread = ("objective.", "data.documents", "data.blank_lines", "data.packing", "data.table.")

    def choose_recipe(
        self, recipe: Recipe | str | None, settings: Sequence[str], start: Run | None
    ) -> Recipe:
        """Return a recipe; with `start`, by default its recipe with its finetuning settings."""
        if start is None:
            return super().choose_recipe(recipe, settings, None)
        chosen = find_recipe(recipe or finetuning_recipe(start), settings)
        require_same(start, chosen, ("model", "head", "tokenizer"))
        return chosen

    def prepare(
        self, recipe: Recipe, tokenizer: Tokenizer | None, out: Path, start: Run | None
    ) -> Prepared:
        """Read the questions; a tokenizer is trained on them and their answers."""
        require_no_task(recipe)
        require_continuing(recipe)
        questions = answered_examples(self.questions)
        return Prepared(
            recipe=recipe,
            tokenizer=tokenizer or train_tokenizer(recipe.tokenizer, texts_of(questions)),
            origin=describe_origin(self.stage, (), questions),
            datasets=lambda run: _datasets(run, questions),
        )


def _datasets(run: Run, questions: Sequence[Example]) -> Datasets:
    pairs = encode_training(run, questions)
    training, held_out = (
        Questions(part, run.row_format.whole_rows) for part in hold_out(pairs, run.recipe)
    )
    return Datasets(training=[WeightedDataset(training)], held_out=[held_out], questions=questions)


def encode_training(run: Run, questions: Sequence[Example]) -> list[tuple[list[int], ...]]:
    """Return prompts and completions to train on.

    Raises:
        UserError: there are none, or one can't be encoded.
    """
    if not questions:
        raise UserError("there are no questions to train on; give at least one")
    if run.recipe.data.ascii_questions:
        questions = list(map(with_ascii_questions, questions))
    return encode_pairs(run.template, questions, run.recipe.model.context_length)
