"""The stages of a model's life: pretraining on text, finetuning on questions, or from scratch."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import regard
from regard.config import to_toml
from regard.errors import UserError
from regard.models.builders import Classifier, Embedder, TokenClassifier
from regard.models.config import LMHeadConfig, MaskedLMHeadConfig
from regard.runs.checkpoints import Progress
from regard.runs.environment import ExecutionEnvironment
from regard.runs.recipe import Recipe, TrainingConfig, load_recipe
from regard.runs.run import Run, load_origin, pack_weights
from regard.tasks.examples import Example, encode_pairs
from regard.text.batches import Batch
from regard.text.clozes import clozes
from regard.text.config import ObjectiveConfig
from regard.text.corpus import Document
from regard.text.tokenizer import (
    OutOfVocabularyError,
    Tokenizer,
    encode_documents,
    train_tokenizer,
)
from regard.training import sources
from regard.training.loop import Settings, train
from regard.training.sources import Source, Stream
from regard.training.step import mean_loss


@dataclass(frozen=True)
class Plan:
    """All that a stage needs, built and checked, before a single step or file."""

    run: Run
    stream: Stream
    validation: list[Batch]
    config: TrainingConfig
    title: str

    def describe(self) -> dict[str, Any]:
        """Sizes, and the loss before this training on its first batch, in nats."""
        first, environment = self.stream.batch(0), ExecutionEnvironment.choose("cpu")
        name = "loss_before" if "parent" in self.run.origin else "untrained_loss"
        return {
            "parameters": self.run.n_parameters,
            "vocabulary": self.run.tokenizer.size,
            "steps": self.stream.steps,
            name: mean_loss(self.run.model, [first], environment),
            "uniform_loss": log(self._choices(first)),
        }

    def _choices(self, batch: Batch) -> int:
        """Among how many a prediction chooses."""
        match self.run.model:
            case Classifier(head=head):
                return head.scores.out_features
            case TokenClassifier(head=head):
                return head.out_features
            case Embedder():
                return batch.n_targets
        return self.run.tokenizer.size

    def execute(self, settings: Settings, *, resume: bool = False) -> Progress:
        """Train; the run's folder is written to from here on."""
        _claim(self.run, resume=resume)
        return train(
            self.run, self.stream, self.validation, self.config, settings, title=self.title
        )


def plan_pretraining(
    corpus: Sequence[Document],
    out: Path,
    recipe: Recipe,
    *,
    questions: Sequence[Example] = (),
    tokenizer: Tokenizer | None = None,
) -> Plan:
    """Pretraining on text, with questions mixed in where the objective has a share for them.

    Raises:
        UserError: the objective, the model and the data don't fit together, or a text can't be
            encoded.
    """
    objective = recipe.objective
    if bool(questions) != (objective.questions > 0):
        raise UserError(
            "objective.questions is 0, but questions are given: set objective.questions=0.2, say"
            if questions
            else "objective.questions is above 0, but there are no questions: give --questions FILE"
        )
    _check_no_task(recipe)
    _check_objective(recipe)
    tokenizer = tokenizer or corpus_tokenizer(corpus, recipe, questions)
    ids = encode_documents(tokenizer, corpus)
    if recipe.data.documents == "files":
        if objective.total > objective.next_token:
            raise UserError(
                "data.documents=files is read in windows, which only objective.next_token can use; "
                "set the other shares to 0, or data.documents=lines"
            )
        return _plan_text(ids, out, recipe, recipe.pretraining, tokenizer, corpus, "pretraining")
    (train_ids, held_out), (documents, _) = hold_out(ids, recipe), hold_out(corpus, recipe)
    parts = [
        *_text_sources(train_ids, tokenizer, recipe),
        sources.clozes(
            _encode_clozes(tokenizer, documents, recipe.max_prompt_tokens, objective),
            objective.clozes,
            objective.question_batch,
        ),
        sources.questions(
            _encode_pairs(tokenizer, questions, recipe),
            objective.questions,
            objective.question_batch,
        ),
    ]
    checks = _text_sources(held_out, tokenizer, recipe)
    run = Run.new(out, recipe, tokenizer, describe_origin("pretraining", corpus, questions))
    return plan(run, parts, checks, recipe.pretraining, "pretraining")


def _text_sources(ids: Sequence[list[int]], tokenizer: Tokenizer, recipe: Recipe) -> list[Source]:
    """What is made of documents alone, each kind with its share."""
    objective, block = recipe.objective, recipe.max_prompt_tokens
    cut = _parts(ids, block)
    return [
        sources.documents(ids, block, objective.next_token),
        sources.corrupted(ids, block, objective.span_corruption),
        sources.masked(cut, tokenizer.size, objective.masking, objective.masked_tokens),
        sources.hidden(cut, objective.masking, objective.masked_autoencoding),
    ]


def _check_objective(recipe: Recipe) -> None:
    """Refuse an objective that the model's head can't learn by.

    Raises:
        UserError: says which it can.
    """
    head, objective = recipe.head, recipe.objective
    if isinstance(head, MaskedLMHeadConfig) and objective.from_the_left:
        raise UserError(
            "head.kind=masked-lm learns from masked texts: set objective.next_token=0 and "
            "objective.masked_tokens=1, or take --recipe masked"
        )
    if isinstance(head, LMHeadConfig) and objective.from_both_sides:
        raise UserError(
            "objective.masked_tokens and masked_autoencoding are for a model that reads both "
            "ways: set model.kind=encoder and head.kind=masked-lm, or take --recipe masked"
        )
    if not isinstance(head, MaskedLMHeadConfig):
        _check_continues(recipe)


def _check_continues(recipe: Recipe) -> None:
    """Refuse a model that doesn't continue texts.

    Raises:
        UserError: says which one does.
    """
    if not recipe.continues_texts:
        family, head = (part.__struct_config__.tag for part in (recipe.model, recipe.head))
        raise UserError(
            f"model.kind={family} with head.kind={head}: this trains what continues a text: take "
            "model.kind=decoder and head.kind=lm, or train on examples (`regard tasks`)"
        )


def _check_no_task(recipe: Recipe) -> None:
    """Refuse a recipe for a task, by which its run would be scored.

    Raises:
        UserError: says how to train for it.
    """
    if recipe.task is not None:
        kind = recipe.task.__struct_config__.tag
        raise UserError(
            f"task.kind={kind}: is learned by `regard train {kind}`; here, take a recipe without"
        )


def _parts(ids: Sequence[list[int]], room: int) -> list[list[int]]:
    """The documents in parts that fit the model; of an empty one, there is nothing to mask."""
    return [
        document[start : start + room]
        for document in ids
        for start in range(0, len(document), room)
    ]


def corpus_tokenizer(
    corpus: Sequence[Document], recipe: Recipe, questions: Sequence[Example] = ()
) -> Tokenizer:
    """The tokenizer that pretraining on a text, with questions mixed in, makes for itself."""
    return train_tokenizer(
        recipe.tokenizer, [document.text for document in corpus] + texts_of(questions)
    )


def plan_finetuning(parent: Run, questions: Sequence[Example], out: Path, recipe: Recipe) -> Plan:
    """Training of a pretrained model on questions.

    Raises:
        UserError: a question can't be encoded or is too long, or the model doesn't continue texts.
    """
    _check_continues(parent.recipe)
    made = ("model", "head", "tokenizer")
    if any(getattr(recipe, part) != getattr(parent.recipe, part) for part in made):
        raise UserError(
            f"{parent.path}: its model and tokenizer are made and can't be changed; "
            "leave model.*, head.* and tokenizer.* as they are"
        )
    if recipe.data.prefix != parent.prefix:
        raise UserError(f"{parent.path}: data.begin_mark is fixed since its pretraining")
    weights = hashlib.sha256(pack_weights(parent)).hexdigest()[:16]
    origin = describe_origin("finetuning", (), questions)
    origin |= {"parent": str(parent.path), "parent_weights": weights}
    run = Run.new(out, recipe, parent.tokenizer, origin)
    run.model.load_state_dict(parent.model.state_dict())
    return _plan_questions(run, questions, recipe.finetuning, "finetuning")


def plan_questions(
    questions: Sequence[Example], out: Path, recipe: Recipe, *, tokenizer: Tokenizer | None = None
) -> Plan:
    """Training on questions from scratch, without any text.

    Raises:
        UserError: a question can't be encoded or is too long, or the model doesn't continue texts.
    """
    _check_no_task(recipe)
    _check_continues(recipe)
    tokenizer = tokenizer or train_tokenizer(recipe.tokenizer, texts_of(questions))
    run = Run.new(out, recipe, tokenizer, describe_origin("questions", (), questions))
    return _plan_questions(run, questions, recipe.training, "training")


def plan_text(corpus: Sequence[Document], out: Path, recipe: Recipe) -> Plan:
    """Training on whole texts, window by window, from scratch.

    Raises:
        UserError: a text is too short or can't be encoded, or the model doesn't continue texts.
    """
    _check_no_task(recipe)
    _check_continues(recipe)
    tokenizer = train_tokenizer(recipe.tokenizer, [document.text for document in corpus])
    ids = encode_documents(tokenizer, corpus)
    return _plan_text(ids, out, recipe, recipe.training, tokenizer, corpus, "training")


def texts_of(questions: Sequence[Example]) -> list[str]:
    """Questions and answers, as a tokenizer is made from them."""
    return [text for q in questions for text in (q.text, q.second, q.answer) if text]


def _plan_questions(
    run: Run, questions: Sequence[Example], config: TrainingConfig, title: str
) -> Plan:
    pairs = _encode_pairs(run.tokenizer, questions, run.recipe)
    training, held_out = hold_out(pairs, run.recipe)
    return plan(run, [sources.questions(training)], [sources.questions(held_out)], config, title)


def _encode_pairs(
    tokenizer: Tokenizer, questions: Sequence[Example], recipe: Recipe
) -> list[tuple[list[int], list[int]]]:
    """The ids of questions to train on, and of their answers."""
    if recipe.data.ascii_questions:
        questions = [msgspec.structs.replace(q, text=_ascii(q.text)) for q in questions]
    return encode_pairs(tokenizer, questions, recipe.max_prompt_tokens)


def _encode_clozes(
    tokenizer: Tokenizer, corpus: Sequence[Document], block: int, objective: ObjectiveConfig
) -> list[tuple[list[list[int]], list[int]]]:
    """The ids of all forms of each cloze, and of its answer.

    Left out is what doesn't fit the block, and what words as tokens can't write: «(Leeds» may be
    one where «Leeds» is none.

    Raises:
        UserError: clozes are wanted, and there are none.
    """
    if not objective.clozes:
        return []
    fewest, most = objective.cloze_words
    encoded = []
    for cloze in (cloze for document in corpus for cloze in clozes(document.text, most)):
        shown = range(min(fewest, len(cloze.left)), len(cloze.left) + 1)
        try:
            answer = tokenizer.encode(cloze.answer)
            forms = [tokenizer.encode(cloze.question(words)) for words in shown]
        except OutOfVocabularyError:
            continue
        fitting = [form for form in forms if len(form) + len(answer) + 2 <= block + 1]
        if fitting:
            encoded.append((fitting, answer))
    if not encoded:
        raise UserError(
            f"objective.clozes is above 0, but no document, as {corpus[0].where}, gives one: each "
            "must begin with its title and a full stop, as in «Ada Finch. Born in Leeds», and fit "
            f"model.context_length={block}; or set objective.clozes=0"
        )
    return encoded


def _ascii(text: str) -> str:
    """What is left without other letters."""
    return text.encode("ascii", "ignore").decode()


def _plan_text(
    ids: list[list[int]],
    out: Path,
    recipe: Recipe,
    config: TrainingConfig,
    tokenizer: Tokenizer,
    corpus: Sequence[Document],
    title: str,
) -> Plan:
    """The last share of each text is held out."""
    block, share = recipe.model.context_length, recipe.data.validation
    cuts = [len(text) - int(share * len(text)) for text in ids]
    joined = [i for text, cut in zip(ids, cuts, strict=True) for i in text[:cut]]
    held_out = [text[cut:] for text, cut in zip(ids, cuts, strict=True) if len(text) - cut > 1]
    if len(joined) < 2:
        raise UserError(f"{corpus[0].where}: is too short to learn from")
    run = Run.new(out, recipe, tokenizer, describe_origin(title, corpus, ()))
    return plan(
        run, [sources.windows(joined, block)], [sources.whole(held_out, block)], config, title
    )


def plan(
    run: Run, parts: list[Source], checks: list[Source], config: TrainingConfig, title: str
) -> Plan:
    """The plan of a stage, from what is trained on and what the validation loss is measured on.

    Raises:
        UserError: training is to stop by a validation loss, and nothing is held out.
    """
    recipe = run.recipe
    stream = Stream(
        parts,
        batch=config.batch,
        block=recipe.model.context_length,
        seed=recipe.seed,
        steps=config.steps,
        epochs=config.epochs,
        shuffle=config.shuffle,
        prefix=recipe.data.prefix,
    )
    run.origin["steps"] = stream.steps
    validation = _validation(checks, recipe, config)
    if config.patience and not validation:
        raise UserError(
            f"{title}.patience: nothing is held out to measure; raise data.validation, or set 0"
        )
    return Plan(run, stream, validation, config, title)


def _validation(checks: list[Source], recipe: Recipe, config: TrainingConfig) -> list[Batch]:
    """All held-out examples, in batches; what is random in them is drawn once."""
    useful = [source for source in checks if source.share > 0 and source.examples]
    batches: list[Batch] = []
    for source in useful:
        stream = Stream(
            [source], batch=config.batch, block=recipe.model.context_length,
            seed=recipe.seed, epochs=1,
            shuffle=False, prefix=recipe.data.prefix,
        )  # fmt: skip
        batches += [stream.batch(step) for step in range(stream.steps)]
    return batches


def hold_out(items: Sequence[Any], recipe: Recipe) -> tuple[list[Any], list[Any]]:
    """Items to train on, and the share that is held out, drawn by the seed."""
    n = int(recipe.data.validation * len(items))
    order = np.random.default_rng([recipe.seed, 3]).permutation(len(items))
    held_out = set(order[:n].tolist())
    return (
        [item for i, item in enumerate(items) if i not in held_out],
        [item for i, item in enumerate(items) if i in held_out],
    )


def describe_origin(
    stage: str, corpus: Sequence[Document], questions: Sequence[Example]
) -> dict[str, Any]:
    """How a run is made, for its origin.json."""
    places = [document.where for document in corpus] + [question.where for question in questions]
    files = dict.fromkeys(re.sub(r":\d+$", "", place) for place in places)
    return {
        "regard": regard.__version__,
        "stage": stage,
        "inputs": [name for name in files if Path(name).is_file()],
        "fingerprint": _fingerprint(corpus, questions),
        "documents": len(corpus),
        "questions": len(questions),
    }


def _fingerprint(corpus: Sequence[Document], questions: Sequence[Example]) -> str:
    """Tells data apart, wherever they lie."""
    pairs = [[q.text, *([] if q.second is None else [q.second]), q.answer] for q in questions]
    data = [[document.text for document in corpus], pairs]
    return hashlib.sha256(msgspec.json.encode(data)).hexdigest()[:16]


def _claim(run: Run, *, resume: bool) -> None:
    """Take the run's folder: new, or the same run again.

    Raises:
        UserError: another run is there, or the same and `resume` is off.
    """
    path = run.path
    if not (path / "config.toml").exists():
        if path.exists() and (not path.is_dir() or any(_foreign(path))):
            raise UserError(f"{path}: exists but is not a run folder; choose another --out")
        run.save_description()
        return
    if not resume:
        raise UserError(f"{path}: holds a run; choose another --out, or go on with --resume")
    here, there = to_toml(run.recipe), to_toml(load_recipe(path))
    changed = sorted(set(here.splitlines()) ^ set(there.splitlines()))
    if here != there:
        raise UserError(
            f"{path}/config.toml: is another recipe ({'; '.join(changed)}); "
            "resume with the same recipe, or choose another --out"
        )
    origin = load_origin(path)
    for name in ("stage", "fingerprint", "parent_weights", "code"):
        if origin.get(name) != run.origin.get(name):
            raise UserError(
                f"{path}/origin.json: {name} was {origin.get(name)} and is {run.origin.get(name)}; "
                "resume with the same command and data, or choose another --out"
            )
    saved = (path / "tokenizer.json").exists() and (path / "tokenizer.json").read_text("utf-8")
    if saved and saved != run.tokenizer.to_json():
        raise UserError(
            f"{path}/tokenizer.json: isn't the tokenizer of these files, so they have changed "
            "since; choose another --out"
        )


def _foreign(path: Path) -> list[Path]:
    """What lies in a folder beside the unfinished first files of a run."""
    own = {"tokenizer.json", "origin.json"}
    return [p for p in path.iterdir() if p.name not in own and not p.name.endswith(".partial")]
