"""Generation: prompts in a run's template, and one loop for any model that keeps a state.

`generate` continues texts, `generate_ids` rows of ids. The loop is batched and cached; each row's
samples depend on the seed and the row alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data.batch import lengths_of, pad_rows
from regard.decoding.package import with_package
from regard.decoding.prepare import has_hooks, prepare
from regard.decoding.sampling import GREEDY, Sampling
from regard.edits.apply import edited
from regard.edits.edit import Edit, Edits
from regard.environment import Precision
from regard.errors import NonFiniteError, UserError, require_list
from regard.models.builders import SequenceToSequence
from regard.runs.run import Run
from regard.text.corpus import Document
from regard.text.template import Affixes
from regard.text.tokenizer import encode_documents


class Generator(Protocol):
    """A model that scores the next token from a state, which has a method `reorder(rows)`."""

    def init_state(self, batch: int, capacity: int) -> Any: ...

    def extend(
        self,
        input_ids: Int[Tensor, "b n"],
        states: Any,
        attention_mask: Bool[Tensor, "b n"] | None = None,
    ) -> tuple[Float[Tensor, "b vocabulary"], Any]: ...


# Prompts


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """A model that is ready to generate, and the rows that it continues."""

    model: Generator
    starts: list[list[int]]
    """The ids to continue, a row per prompt."""
    shown: list[list[int]]
    """The part of them that the returned text includes: the prompt if it is continued, or none."""
    max_new_tokens: int
    """Number of new tokens per row."""
    stop_ids: Sequence[int]
    decode: Callable[[Sequence[int]], str]
    """Returns the text of ids."""
    around_answer: Affixes = field(default_factory=Affixes)
    """Ids of the template around an answer, of which the text has none."""

    def text(
        self, row: int, new: Sequence[int], stop_string: str | None, stop_id: int | None = None
    ) -> str:
        """Return the text of a row with its new tokens, up to the first stop string in those.

        `stop_id` is the stop id after the new tokens, if any.
        """
        new = self.around_answer.without_suffix(new, stop_id)
        before = self.decode(self.shown[row])
        text = self.decode([*self.shown[row], *new])
        end = text.find(stop_string, len(before)) if stop_string else -1
        return text if end < 0 else text[:end]


@torch.inference_mode()
def encode_prompts(
    run: Run,
    prompts: Sequence[str],
    *,
    max_new_tokens: int | None = None,
    raw: bool = False,
) -> Prompts:
    """Encode prompts: as questions if the run answers questions, unless `raw`; or to be continued.

    By default, `max_new_tokens` fills the context of the longest prompt, for all rows.

    Raises:
        UserError: the model doesn't generate; there are no prompts, or one is empty, too long, or
            can't be encoded; there are no new tokens; or an encoder–decoder's source is raw.
    """
    require_list(prompts, "prompts")
    prompts = list(prompts)
    if not prompts:
        raise UserError("prompts: expected one or more, not an empty list")
    if max_new_tokens is not None and max_new_tokens < 1:
        raise UserError(f"the number of new tokens must be ≥ 1, not {max_new_tokens}")
    texts = encode_documents(
        run.tokenizer, [Document(prompt, f"prompt {i}") for i, prompt in enumerate(prompts, 1)]
    )
    for number, text in enumerate(texts, 1):
        if not text:
            raise UserError(f"prompt {number}: is empty; a model needs a beginning")
    has_source = isinstance(run.model, SequenceToSequence)
    if raw and has_source:
        raise UserError("raw: an encoder–decoder answers a source and continues none; leave it out")
    answers = has_source or (run.answers_questions and not raw)
    affixes = run.template.prompt if answers and not has_source else run.text_affixes
    rows = [affixes.around(text) for text in texts]
    if has_source:
        _require_fit(rows, 0, run.recipe.max_source_tokens)
    model, starts = begin_answers(run, rows) if answers else (with_package(run), rows)
    context_length = run.recipe.model.context_length
    _require_fit(starts, (max_new_tokens or 1) - 1, context_length)
    new_tokens = max_new_tokens or context_length + 1 - max(map(len, starts))
    return Prompts(
        model=model,
        starts=starts,
        shown=[[]] * len(texts) if answers else texts,
        max_new_tokens=new_tokens,
        stop_ids=run.tokenizer.special.stop_ids,
        decode=run.tokenizer.decode,
        around_answer=answer_affixes(run) if answers else Affixes(),
    )


def answer_affixes(run: Run) -> Affixes:
    """Return the ids of the template around an answer, or around the target of a source."""
    is_target = isinstance(run.model, SequenceToSequence)
    return run.template.target if is_target else run.template.completion


def begin_answers(run: Run, rows: Sequence[list[int]]) -> tuple[Generator, list[list[int]]]:
    """Return the model that answers rows (prompts or sources), and the ids that it continues.

    Raises:
        UserError: the model doesn't generate.
    """
    if not isinstance(run.model, SequenceToSequence):
        return with_package(run), [run.template.open_answer(row) for row in rows]
    start, padding = run.template.open_target(), run.tokenizer.special.padding
    padded = pad_rows(rows, padding, limit=run.recipe.max_source_tokens).to(run.device)
    return run.model.condition(padded, lengths_of(rows).to(run.device)), [start] * len(rows)


def _require_fit(rows: Sequence[Sequence[int]], new: int, context_length: int) -> None:
    for number, row in enumerate(rows, 1):
        if len(row) + new > context_length:
            with_new = f", and with {new + 1} new ones that" if new else ", which"
            raise UserError(
                f"prompt {number}: takes {len(row)} tokens{with_new} is more than the model's "
                f"context length of {context_length}; shorten it or ask for fewer"
            )


# The loop

DAMAGED = "the model's logits are NaN or infinite; its weights are damaged"


@dataclass(frozen=True)
class Generated:
    """The new tokens of one row.

    >>> [row] = generate_ids(run.model, [[5, 6, 7]], max_new_tokens=3)
    >>> len(row.ids), len(row.log_probabilities), row.stopped
    (3, 3, False)
    """

    ids: list[int]
    """New tokens, without the stop token."""
    log_probabilities: list[float]
    """Log-probability of each new token under the model, the stop token's last, in nats."""
    stop_id: int | None = None
    """The stop id that was reached, if any."""

    @property
    def stopped(self) -> bool:
        """Whether one of the stop ids was reached."""
        return self.stop_id is not None


@dataclass
class Decoding:
    """Rows that are decoded token by token, by any method that chooses the tokens."""

    model: Generator
    logits: Float[Tensor, "rows vocabulary"]
    """Logits of each row's next token."""
    states: Any

    @staticmethod
    def start(
        model: Generator,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        device: torch.device | None = None,
    ) -> "Decoding":
        """Read the prompts, with capacity for the new tokens, by default on the model's device.

        The last new token needs no place: nothing comes after it.

        Raises:
            UserError: there are no prompts, one is empty, or there are no new tokens.
        """
        if max_new_tokens < 1:
            raise UserError(f"the number of new tokens must be ≥ 1, not {max_new_tokens}")
        if not len(prompts) or not all(map(len, prompts)):
            raise UserError("prompts: expected rows of ids, none of them empty")
        if device is None and isinstance(model, torch.nn.Module):
            device = next(model.parameters()).device
        model = prepare(model)
        lengths = lengths_of(prompts)
        longest = int(lengths.max())
        capacity = longest + max_new_tokens - 1
        ids = pad_rows(prompts, 0, limit=capacity if longest > 1 else 1)
        real = torch.arange(ids.shape[1]) < lengths[:, None]
        attention_mask = None if real.all() else real.to(device)
        states = model.init_state(len(prompts), capacity)
        return Decoding(model, *model.extend(ids.to(device), states, attention_mask))

    def append(self, tokens: Int[Tensor, " rows"]) -> None:
        """Read the next token of each row."""
        self.logits, self.states = self.model.extend(tokens.unsqueeze(1), self.states)


@torch.inference_mode()
def generate_ids(
    model: Generator,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_ids: Sequence[int] = (),
    sampling: Sampling = GREEDY,
    device: torch.device | None = None,
) -> list[Generated]:
    """Continue all prompts together; they may differ in length, and none may be empty.

    Raises:
        NonFiniteError: a logit is NaN or infinite.

    >>> rows = generate_ids(run.model, [[5, 6, 7], [8]], max_new_tokens=3)
    >>> [len(row.ids) for row in rows]
    [3, 3]
    """
    decoding = Decoding.start(model, prompts, max_new_tokens, device)
    at_once = -(-SCORED_TOGETHER // max(decoding.logits.numel(), 1))
    steps = _steps(decoding, max_new_tokens, stop_ids, sampling)
    tokens: list[Tensor] = []
    scores: list[Tensor] = []
    while some := list(islice(steps, at_once)):
        new, logits = zip(*some, strict=True)
        tokens += new
        scores.append(_scores(logits, new))
    return [
        _until_stop(row_ids, row_scores, stop_ids)
        for row_ids, row_scores in zip(
            torch.stack(tokens, 1).tolist(), torch.cat(scores, 1).tolist(), strict=True
        )
    ]


SCORED_TOGETHER = 2**20
"""Number of logits to collect before the log-probabilities of their tokens are computed."""


def _scores(
    logits: tuple[Float[Tensor, "rows vocabulary"], ...], tokens: tuple[Int[Tensor, " rows"], ...]
) -> Float[Tensor, "rows steps"]:
    """Return the log-probabilities of the tokens of several steps.

    Raises:
        NonFiniteError: a logit is NaN or infinite.
    """
    scores = torch.stack(logits).float().log_softmax(-1)
    scores = scores.gather(-1, torch.stack(tokens).unsqueeze(-1)).squeeze(-1)
    if not scores.isfinite().all():
        raise NonFiniteError(DAMAGED)
    return scores.T


def _steps(
    decoding: Decoding, max_new_tokens: int, stop_ids: Sequence[int], sampling: Sampling
) -> Iterator[tuple[Int[Tensor, " rows"], Float[Tensor, "rows vocabulary"]]]:
    """Yield each row's next token and the logits before it, until all rows have reached a stop id.

    A finished row is still extended until then.
    """
    rows = len(decoding.logits)
    shape = rows, max_new_tokens
    drawn = sampling.uniforms(*shape) if sampling.temperature else torch.zeros(shape)
    stops, unfinished = frozenset(stop_ids), set(range(rows))
    for step, numbers in enumerate(drawn.to(decoding.logits.device).unbind(1), 1):
        token = sampling.choose(decoding.logits, numbers)
        yield token, decoding.logits
        if stops:
            unfinished -= {row for row, new in enumerate(token.tolist()) if new in stops}
        if step == max_new_tokens or not unfinished:
            return
        decoding.append(token)


@torch.inference_mode()
def stream(
    model: Generator,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_ids: Sequence[int] = (),
    sampling: Sampling = GREEDY,
    device: torch.device | None = None,
) -> Iterator[tuple[Int[Tensor, " rows"], Float[Tensor, "rows vocabulary"]]]:
    """Yield each row's next token and the logits before it, until all rows have reached a stop id.

    Raises:
        NonFiniteError: a logit is NaN or infinite.

    >>> for tokens, logits in stream(run.model, [[5, 6, 7], [8]], max_new_tokens=2):
    ...     print(tokens.shape, logits.shape)
    torch.Size([2]) torch.Size([2, 15])
    torch.Size([2]) torch.Size([2, 15])
    """
    decoding = Decoding.start(model, prompts, max_new_tokens, device)
    for token, logits in _steps(decoding, max_new_tokens, stop_ids, sampling):
        if not logits.isfinite().all():
            raise NonFiniteError(DAMAGED)
        yield token, logits


def _until_stop(ids: list[int], scores: list[float], stop_ids: Sequence[int]) -> Generated:
    end = next((place for place, i in enumerate(ids) if i in stop_ids), None)
    if end is None:
        return Generated(ids, scores)
    return Generated(ids[:end], scores[: end + 1], ids[end])


# Texts


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
    edit: Edit | Edits | None = None,
) -> list[str]:
    """Answer each prompt if the run was trained to answer, or else continue it.

    Answers are returned without their prompts, continuations with them. With `raw`, prompts are
    always continued, without a question template. A sample depends only on the seed, its row and
    its prompt. `stop_string` ends a text and is not part of it. By default, `max_new_tokens` fills
    the context. `edit` applies to all tokens; its words and positions refer to each prompt.

    Raises:
        UserError: a prompt is empty, too long, or can't be encoded, or the edit doesn't fit it.

    >>> regard.generate(run, ["Where was Ada born?", "Where was Bob born?"])
    ['Rome', 'Oslo']
    >>> regard.generate(run, ["Where was Ada born?"], temperature=0.8, top_k=5, seed=1)
    ['Rome']
    """
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    with run.environment(precision).autocast(), edited(run, edit):
        encoded = encode_prompts(run, prompts, max_new_tokens=max_new_tokens, raw=raw)
        generated = generate_ids(
            encoded.model,
            encoded.starts,
            max_new_tokens=encoded.max_new_tokens,
            stop_ids=encoded.stop_ids,
            sampling=sampling,
            device=run.device,
        )
    return [
        encoded.text(row, new.ids, stop_string, new.stop_id) for row, new in enumerate(generated)
    ]


def decode_answer(run: Run, generated: Generated) -> str:
    """Return a generated answer as text, without the template's text behind it."""
    ids = answer_affixes(run).without_suffix(generated.ids, generated.stop_id)
    return run.tokenizer.decode(ids).strip()


def generate_answers(
    run: Run, rows: Sequence[list[int]], *, max_new_tokens: int | None = None
) -> list[Generated]:
    """Answer prompts or sources, as rows of ids, greedily; no answer depends on the other rows.

    Each is generated until a stop token, the end of its own context, or `max_new_tokens`.

    Raises:
        UserError: the model doesn't generate.
    """
    # With hooks, continued rows would be new prompts, in which edits would look up positions again.
    lengths = {len(row) for row in rows} if has_hooks(run.model) else set[int]()
    if len(lengths) > 1:
        found: dict[int, Generated] = {}
        for length in lengths:
            places = [i for i, row in enumerate(rows) if len(row) == length]
            some = [rows[i] for i in places]
            answers = generate_answers(run, some, max_new_tokens=max_new_tokens)
            found |= dict(zip(places, answers, strict=True))
        return [found[i] for i in range(len(rows))]
    model, starts = begin_answers(run, rows)
    return _fill(run, model, starts, max_new_tokens or run.recipe.model.context_length)


def _fill(
    run: Run, model: Generator, starts: Sequence[list[int]], max_new_tokens: int
) -> list[Generated]:
    """Continue all rows until the longest fills its context, and then the shorter ones."""
    longest = max(map(len, starts))
    n = min(max_new_tokens, run.recipe.model.context_length + 1 - longest)
    stop_ids = run.tokenizer.special.stop_ids
    found = generate_ids(model, starts, max_new_tokens=n, stop_ids=stop_ids, device=run.device)
    open_rows = [i for i, row in enumerate(found) if not row.stopped and len(starts[i]) < longest]
    if n == max_new_tokens or not open_rows:
        return found
    begun = [[*starts[i], *found[i].ids] for i in open_rows]
    for i, rest in zip(open_rows, _fill(run, model, begun, max_new_tokens - n), strict=True):
        scores = [*found[i].log_probabilities, *rest.log_probabilities]
        found[i] = Generated([*found[i].ids, *rest.ids], scores, rest.stop_id)
    return found
