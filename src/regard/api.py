"""The commands as functions: what `import regard` offers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.decoding import EarlyStopping, Sampling
from regard.decoding import beam_search as search_ids
from regard.decoding import generate as generate_ids
from regard.errors import UserError
from regard.evaluation.answers import Answer, answer_questions
from regard.evaluation.evaluate import Evaluation
from regard.evaluation.evaluate import evaluate as evaluate_run
from regard.evaluation.tasks import Prediction, TaskScore, predict, score_task
from regard.evaluation.writing import writer
from regard.models.families import Classifier, TokenClassifier
from regard.runs.config_tasks import ProbeConfig
from regard.runs.machine import Machine, Precision
from regard.runs.recipe import DataConfig, Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.runs.toml import override
from regard.tasks.catalogue import check_examples
from regard.tasks.questions import Question
from regard.text.corpus import Document, read_corpus
from regard.text.vocabulary import MASK
from regard.training.loop import Settings
from regard.training.stages import (
    Plan,
    plan_finetuning,
    plan_pretraining,
    plan_questions,
    plan_text,
)
from regard.training.task_stages import plan_task

if TYPE_CHECKING:
    from collections.abc import Iterable


def load(path: str | Path, *, device: str = "auto") -> Run:
    """The run in a folder."""
    return Run.load(Path(path), device=Machine.choose(device).device)


def pretrain(
    corpus: "str | Path | Sequence[str]",
    *,
    out: str | Path,
    questions: Sequence[Question] = (),
    recipe: Recipe | str = "plain",
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
) -> Run:
    """Train a model on a file or on a list of documents.

    `settings` are overrides such as "model.n_layers=6"; `questions` are mixed in.
    """
    chosen = _recipe(recipe, settings)
    documents = _documents(corpus, chosen.data)
    plan = plan_pretraining(documents, Path(out), chosen, questions=questions)
    return _execute(plan, device, precision, resume)


def finetune(
    run: Run,
    questions: Sequence[Question],
    *,
    out: str | Path,
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
) -> Run:
    """Train a pretrained model on questions; `run` stays as it is."""
    plan = plan_finetuning(run, questions, Path(out), override(run.recipe, settings))
    return _execute(plan, device, precision, resume)


def train(
    data: "str | Path | Sequence[Question]",
    *,
    out: str | Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
) -> Run:
    """Train a model from scratch on questions, or on the text of a file."""
    if isinstance(data, str | Path):
        chosen = _recipe(recipe or "text", settings)
        plan = plan_text(read_corpus([Path(data)], whole_files=True), Path(out), chosen)
    else:
        plan = plan_questions(data, Path(out), _recipe(recipe or "plain", settings))
    return _execute(plan, device, precision, resume)


def train_task(
    task: str,
    examples: Sequence[Question] | None = None,
    *,
    out: str | Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
) -> Run:
    """Train a model for a task of `regard tasks`, on its own examples where none are given."""
    plan = plan_task(Path(out), _recipe(recipe or task, settings), examples)
    return _execute(plan, device, precision, resume)


def score(
    run: Run, questions: Sequence[Question] | None = None, *, precision: Precision = "float32"
) -> TaskScore:
    """How a run does at its task, on its own examples for testing where none are given."""
    return score_task(run, _machine_of(run, precision), questions)


def label(
    run: Run, texts: "Sequence[str | tuple[str, str]]", *, precision: Precision = "float32"
) -> list[Prediction]:
    """The label of each text or pair of texts, or the tags of a text's words, with probabilities.

    Raises:
        UserError: the run gives no labels; or a text is empty, too long, or can't be encoded.
    """
    if not isinstance(run.model, Classifier | TokenClassifier):
        raise UserError(
            f"{run.path}: gives no labels; take a run with head.kind=classes or token-classes"
        )
    pairs = [(text, None) if isinstance(text, str) else text for text in texts]
    asked = [
        Question(text=text, second=second, where=f"prompt {i}")
        for i, (text, second) in enumerate(pairs, 1)
    ]
    if run.recipe.task is not None and not isinstance(run.recipe.task, ProbeConfig):
        check_examples(run.recipe.task, asked)
    for question in asked:
        if "" in (question.text.strip(), question.second and question.second.strip()):
            raise UserError(f"{question.where}: is empty; a model needs something to read")
    found, cut = predict(run, asked, _machine_of(run, precision))
    if cut:
        raise UserError(f"{cut} prompts take more than the model's {run.room} tokens; shorten them")
    return found


def answer(
    run: Run,
    questions: "Iterable[str]",
    *,
    paraphrases: Sequence[str] = (),
    precision: Precision = "float32",
) -> list[Answer]:
    """What a run answers, with the signals that may tell recall from invention.

    Several questions of one wording show what each is about, which some signals need.
    """
    asked = [Question(text=text, where=f"question {i}") for i, text in enumerate(questions, 1)]
    return answer_questions(run, asked, _machine_of(run, precision), paraphrases=paraphrases)


def evaluate(
    run: Run,
    questions: Sequence[Question],
    *,
    paraphrases: Sequence[str] = (),
    precision: Precision = "float32",
) -> Evaluation:
    """Answers and score."""
    return evaluate_run(run, questions, _machine_of(run, precision), paraphrases=paraphrases)


def generate(
    run: Run,
    prompts: Sequence[str],
    *,
    max_new_tokens: int | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    stop: str | None = None,
    precision: Precision = "float32",
) -> list[str]:
    """Continue each prompt; the result holds prompt and continuation, or the answer of a task.

    A sample depends on the seed, its row and its prompt alone. `stop` ends a continuation, and is
    not part of it. Without `max_new_tokens`, the model goes on until its block is full.

    Raises:
        UserError: a prompt is empty, too long, or can't be encoded.
    """
    machine = _machine_of(run, precision)
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    with machine.autocast():
        asked = writer(run, prompts, machine.device, max_new_tokens)
        generated = generate_ids(
            asked.model,
            asked.starts,
            max_new_tokens=asked.room,
            stop=MASK,
            sampling=sampling,
            device=machine.device,
        )
    return [asked.text(row, new.ids, stop) for row, new in enumerate(generated)]


@dataclass(frozen=True)
class Continuation:
    """A prompt with a continuation that beam search found."""

    text: str
    log_probability: float
    """Of the continuation, what follows `stop` included."""
    score: float
    """The log-probability, over the number of new tokens to the power of the length penalty."""


def beam_search(
    run: Run,
    prompts: Sequence[str],
    *,
    beams: int,
    n_best: int = 1,
    max_new_tokens: int | None = None,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = "never",
    stop: str | None = None,
    precision: Precision = "float32",
) -> list[list[Continuation]]:
    """The `n_best` most probable continuations of each prompt, the best first.

    `stop` ends a text, and is not part of it; it doesn't end the search. Without `max_new_tokens`,
    a continuation may fill the model's block.

    Raises:
        UserError: a prompt is empty, too long, or can't be encoded; or a setting is impossible.
    """
    machine = _machine_of(run, precision)
    with machine.autocast():
        asked = writer(run, prompts, machine.device, max_new_tokens)
        found = search_ids(
            asked.model,
            asked.starts,
            beams=beams,
            n_best=n_best,
            max_new_tokens=asked.room,
            stop=MASK,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            device=machine.device,
        )
    return [
        [
            Continuation(asked.text(row, beam.ids, stop), beam.log_probability, beam.score)
            for beam in best
        ]
        for row, best in enumerate(found)
    ]


def _execute(plan: Plan, device: str, precision: Precision, resume: bool) -> Run:
    plan.execute(Settings(machine=Machine.choose(device, precision)), resume=resume)
    return plan.run


def _machine_of(run: Run, precision: Precision) -> Machine:
    return Machine.choose(str(next(run.model.parameters()).device), precision)


def _recipe(recipe: Recipe | str, settings: Sequence[str]) -> Recipe:
    if isinstance(recipe, str):
        if recipe not in RECIPES:
            raise UserError(f"recipe {recipe}: unknown; there are: {', '.join(sorted(RECIPES))}")
        recipe = RECIPES[recipe]
    return override(recipe, settings)


def _documents(corpus: "str | Path | Sequence[str]", data: DataConfig) -> list[Document]:
    if isinstance(corpus, str | Path):
        whole_files = data.documents == "files"
        return read_corpus([Path(corpus)], whole_files=whole_files, blank_lines=data.blank_lines)
    if not corpus:
        raise UserError("the corpus holds no document")
    return [Document(text, f"document {i}") for i, text in enumerate(corpus, 1)]
