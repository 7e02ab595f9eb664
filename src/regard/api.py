"""The commands as functions: what `import regard` offers.

`pretrain`, `finetune` and `train` have two halves, in `regard.training`: `plan_…` builds and checks
everything, `Plan.execute` writes the run's folder and trains.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.comparison.grid import CellSettings, Grid
from regard.comparison.plan import plan_comparison
from regard.comparison.scheduler import train_comparison
from regard.comparison.table import Comparison
from regard.decoding import EarlyStopping, Sampling
from regard.decoding import beam_search as search_ids
from regard.decoding import generate as generate_ids
from regard.decoding.generate import encode_prompts
from regard.errors import UserError
from regard.evaluation.evaluate import Answer, Evaluation, answer_questions
from regard.evaluation.evaluate import evaluate as evaluate_run
from regard.evaluation.perplexity import TextScore, text_perplexity
from regard.evaluation.tasks import Prediction, TaskScore, predict, score_task
from regard.models.builders import Classifier, TokenClassifier
from regard.runs.environment import ExecutionEnvironment, Precision
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.tasks.examples import Example, Examples, read_questions
from regard.tasks.probes import ProbeConfig
from regard.tasks.registry import TaskConfig, check_examples, read_examples
from regard.text.corpus import Corpus, read_corpus
from regard.training.loop import ExecutionOptions
from regard.training.plan import plan_finetuning, plan_pretraining, plan_training


def load(
    path: str | Path,
    *,
    device: str = "auto",
    threads: int | None = None,
    trust_code: bool = False,
) -> Run:
    """Load the run in a folder; with `trust_code`, custom code in it may come from elsewhere."""
    environment = ExecutionEnvironment.choose(device, threads=threads)
    return Run.load(Path(path), device=environment.device, trust_code=trust_code)


# Training


def pretrain(
    corpus: Corpus,
    *,
    out: str | Path,
    questions: Examples = (),
    recipe: Recipe | str = "default",
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
) -> Run:
    """Train a model on text, with questions mixed in.

    `recipe` is a name, a TOML file or a `Recipe`; `settings` override it: "model.n_layers=6".
    """
    plan = plan_pretraining(corpus, out, recipe, settings, questions=questions)
    plan.execute(ExecutionOptions.choose(device, precision), resume=resume)
    return plan.run


def finetune(
    run: Run,
    questions: Examples,
    *,
    out: str | Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
) -> Run:
    """Train a pretrained model on questions. `run` isn't changed, and its recipe is the default."""
    plan = plan_finetuning(run, questions, out, recipe, settings)
    plan.execute(ExecutionOptions.choose(device, precision), resume=resume)
    return plan.run


def train(
    task: str,
    data: Corpus | Examples | None = None,
    *,
    out: str | Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
) -> Run:
    """Train a model from scratch: on "questions", on "text", or for a task of `regard tasks`.

    A task generates its own examples if no data are given.
    """
    plan = plan_training(task, data, out=out, recipe=recipe, settings=settings)
    plan.execute(ExecutionOptions.choose(device, precision), resume=resume)
    return plan.run


def compare(
    task: str,
    *,
    over: Mapping[str, Sequence[Any]],
    out: str | Path,
    tune: Mapping[str, Sequence[Any]] | None = None,
    seeds: int = 5,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    baseline: Mapping[str, Any] | None = None,
    score: str | None = None,
    within: float = 0.05,
    jobs: int | None = None,
    add: Sequence[str | Path] = (),
    cells: int | None = None,
    threads: int = 1,
    device: str = "auto",
    precision: Precision = "float32",
) -> Comparison:
    """Train a grid of runs for a task in worker processes, and compare them.

    `over` and `tune` map fields of the recipe to values: rows of the table, and values of which
    each row takes the best by validation. What has ended in the folder `out` isn't trained anew;
    `jobs` cells are trained at a time, by default one per core. `add` are runs made by hand that
    join, `cells` confirms the number of more than 1 000.

    Raises:
        UserError: an axis or value is impossible, or the folder holds something else.
    """
    grid = Grid(
        task=task,
        recipe=recipe,
        settings=tuple(settings),
        over=dict(over),
        tune=dict(tune or {}),
        seeds=seeds,
        baseline=dict(baseline or {}),
        score=score,
        within=within,
        cell=CellSettings(threads=threads, device=device, precision=precision),
    )
    planned = plan_comparison(grid, confirmed=cells)
    return train_comparison(planned, Path(out), jobs=jobs, add=[Path(run) for run in add])


# Evaluation


def evaluate(
    run: Run,
    data: Examples | None = None,
    *,
    paraphrases: Sequence[str] = (),
    seed: int = 0,
    precision: Precision = "float32",
) -> Evaluation | TaskScore | TextScore:
    """Score a run: by its task, on questions, or on a .txt file by perplexity.

    A run with a task is scored on `data` or on the task's own test examples. `paraphrases` are
    other wordings of the questions, with {} for the subject. `seed` splits the answers into the
    half that selects a signal and the half that scores it.

    Raises:
        UserError: the data don't fit the run.
    """
    environment = environment_of(run, precision)
    if (task := run.recipe.task) is not None:
        return score_task(run, environment, None if data is None else _task_examples(task, data))
    if data is None:
        raise UserError(f"{run.path}: was trained for no task: name a file of questions, or a text")
    if isinstance(data, str | Path) and Path(data).suffix == ".txt":
        whole_files = run.recipe.data.documents == "files"
        return text_perplexity(run, read_corpus([Path(data)], whole_files=whole_files), environment)
    questions = read_questions(Path(data)) if isinstance(data, str | Path) else data
    return evaluate_run(run, questions, environment, paraphrases=paraphrases, seed=seed)


def label(
    run: Run, texts: "Sequence[str | tuple[str, str]]", *, precision: Precision = "float32"
) -> list[Prediction]:
    """The label of each text or pair of texts, or the tags of a text's words, with probabilities.

    Raises:
        UserError: the run gives no labels; or a text is empty, too long, or can't be encoded.
    """
    if not isinstance(run.model, Classifier | TokenClassifier):
        raise UserError(
            f"{run.path}: gives no labels; take a run with head.kind=classification or "
            "token-classification"
        )
    pairs = [(text, None) if isinstance(text, str) else text for text in texts]
    asked = [
        Example(text=text, second=second, where=f"prompt {i}")
        for i, (text, second) in enumerate(pairs, 1)
    ]
    if run.recipe.task is not None and not isinstance(run.recipe.task, ProbeConfig):
        check_examples(run.recipe.task, asked)
    for question in asked:
        if "" in (question.text.strip(), question.second and question.second.strip()):
            raise UserError(f"{question.where}: is empty; a model needs something to read")
    found, cut = predict(run, asked, environment_of(run, precision))
    if cut:
        raise UserError(
            f"{cut} prompts take more than the model's {run.max_text_tokens} tokens; shorten them"
        )
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
    asked = [Example(text=text, where=f"question {i}") for i, text in enumerate(questions, 1)]
    return answer_questions(run, asked, environment_of(run, precision), paraphrases=paraphrases)


# Generation


def generate(
    run: Run,
    prompts: Sequence[str],
    *,
    max_new_tokens: int | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    stop_string: str | None = None,
    raw: bool = False,
    precision: Precision = "float32",
) -> list[str]:
    """Answer each prompt if the run was trained to answer, or else continue it.

    An answer stands alone, a continuation behind its prompt. With `raw`, a prompt is always
    continued, as it stands. A sample depends only on the seed, its row and its prompt.
    `stop_string` ends a text and is not part of it. `max_new_tokens` defaults to what fits the
    context.

    Raises:
        UserError: a prompt is empty, too long, or can't be encoded.
    """
    environment = environment_of(run, precision)
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    with environment.autocast():
        encoded = encode_prompts(
            run, prompts, environment.device, max_new_tokens=max_new_tokens, raw=raw
        )
        generated = generate_ids(
            encoded.model,
            encoded.starts,
            max_new_tokens=encoded.max_new_tokens,
            stop_ids=run.tokenizer.special.stop_ids,
            sampling=sampling,
            device=environment.device,
        )
    return [encoded.text(row, new.ids, stop_string) for row, new in enumerate(generated)]


@dataclass(frozen=True)
class Continuation:
    """A prompt with a continuation that beam search found."""

    text: str
    log_probability: float
    """Of the continuation, what follows `stop_string` included."""
    score: float
    """The log-probability, over the number of new tokens to the power of the length penalty."""


def beam_search(
    run: Run,
    prompts: Sequence[str],
    *,
    num_beams: int,
    num_return_sequences: int = 1,
    max_new_tokens: int | None = None,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = "never",
    stop_string: str | None = None,
    raw: bool = False,
    precision: Precision = "float32",
) -> list[list[Continuation]]:
    """The `num_return_sequences` most probable texts of each prompt, the best first.

    They are answers or continuations, as in `generate`. `stop_string` truncates the text, not the
    search. `max_new_tokens` defaults to what fits the context.

    Raises:
        UserError: a prompt is empty, too long, or can't be encoded; or a setting is impossible.
    """
    environment = environment_of(run, precision)
    with environment.autocast():
        encoded = encode_prompts(
            run, prompts, environment.device, max_new_tokens=max_new_tokens, raw=raw
        )
        found = search_ids(
            encoded.model,
            encoded.starts,
            beams=num_beams,
            n_best=num_return_sequences,
            max_new_tokens=encoded.max_new_tokens,
            stop_ids=run.tokenizer.special.stop_ids,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            device=environment.device,
        )
    return [
        [
            Continuation(encoded.text(row, beam.ids, stop_string), beam.log_probability, beam.score)
            for beam in best
        ]
        for row, best in enumerate(found)
    ]


def environment_of(run: Run, precision: Precision = "float32") -> ExecutionEnvironment:
    """Return the device of a run's model, with a precision."""
    return ExecutionEnvironment.choose(str(run.device), precision)


def _task_examples(task: TaskConfig, examples: Examples) -> list[Example]:
    if isinstance(examples, str | Path):
        return read_examples(task, Path(examples))
    return list(examples)
