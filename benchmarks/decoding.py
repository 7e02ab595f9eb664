"""Generation beside Hugging Face's, and evaluation beside a loop without a cache.

Generation: 32 tokens are continued by 64, alone and in a batch of 64, by a model of 4 layers, 8
heads and width 256 in float32, and by Hugging Face's GPT-2 with the same weights, whose tokens are
checked to be the same. The batch of 64 is also continued in bfloat16, and compared with Hugging
Face's in float32. Each new token needs all weights, so it can't take less than their bytes
over the machine's memory bandwidth: the floor. The bandwidth is the better of a sum over a buffer
as large as the weights and a copy of one, timed in the same rounds. Beams and other families:
decoding_families.py.

Evaluation: 500 questions are answered with 32 characters each by `answer_questions`, signals
included, and one by one by a full pass over the growing text for each character, as the course's
code does. The loop answers the first 20 questions, and its time is scaled to all.

    python benchmarks/decoding.py [--rounds 7] [--device cpu] [--out DIR]

Prints tables, and writes decoding.json into docs/figures. Hugging Face's model comes with
`pip install 'regard[bench]'`; without it, ours is measured alone.
"""

import argparse
import statistics
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import measure
import msgspec
import torch
from measure import MASK
from peers import HUGGING_FACE, SIZE, VOCABULARY, load_ours, not_installed, scatter
from rich.console import Console
from rich.table import Table
from torch import Tensor

from regard.decoding import generate_ids, search_ids
from regard.environment import ExecutionEnvironment, Precision
from regard.evaluation.answers import Answer, answer
from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig
from regard.models.transformer import Decoder
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.tasks.examples import Example
from regard.tasks.world import make_world
from regard.text.config import CharactersConfig
from regard.text.tokenizer import train_tokenizer
from regard.uncertainty.signals import quick_signals

PROMPT, NEW = 32, 64
"""Tokens given, and tokens generated."""
GOALS: dict[Precision, dict[int, float]] = {
    "float32": {1: 2.2, 64: 1.5},
    "bfloat16": {64: 2.5},
}
"""Speed over Hugging Face's in float32, by number of rows."""
QUESTIONS, SAMPLE, CHARACTERS = 500, 20, 32
"""Questions in all, those that the loop answers, and how long the answers are."""
EVALUATION = 20.0
"""Goal of the speed over the loop's."""
OURS, LOOP = "Regard", "one by one, no cache"


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The times of generating for so many rows."""

    rows: int
    precision: Precision
    """Ours."""
    times: dict[str, list[float]]
    """Seconds for all new tokens, by name."""
    bytes: int
    """Of the weights that each step reads, in float32."""
    bandwidth: float
    """Bytes a second."""

    def floor(self, name: str) -> float:
        """Seconds that reading the weights for each new token takes at least."""
        halved = name == OURS and self.precision == "bfloat16"
        return NEW * self.bytes / (1 + halved) / self.bandwidth

    def speed(self, name: str) -> float:
        """New tokens a second."""
        return self.rows * NEW / statistics.median(self.times[name])

    @property
    def gain(self) -> measure.Ratio | None:
        """Our speed over Hugging Face's."""
        theirs = self.times.get(HUGGING_FACE.name)
        return None if theirs is None else measure.Ratio.of(theirs, self.times[OURS])

    @property
    def goal(self) -> float | None:
        """Of the gain."""
        return GOALS[self.precision].get(self.rows)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The times of answering all questions."""

    questions: int
    sample: int
    """Questions that the loop answered."""
    times: dict[str, list[float]]
    """Seconds by name; the loop's scaled to all questions."""

    @property
    def gain(self) -> measure.Ratio:
        """The loop's time over ours."""
        return measure.Ratio.of(self.times[LOOP], self.times[OURS])


# Generation


def continued(
    model: LanguageModel, prompts: Tensor, precision: Precision = "float32"
) -> list[list[int]]:
    """The new tokens of each row, by Regard."""
    with ExecutionEnvironment.choose(str(prompts.device), precision).autocast():
        found = generate_ids(model, prompts.tolist(), max_new_tokens=NEW, device=prompts.device)
    return [row.ids for row in found]


def searched(model: LanguageModel, prompts: Tensor, beams: int) -> list[list[int]]:
    """The new tokens of each row's best beam, by Regard."""
    found = search_ids(
        model, prompts.tolist(), beams=beams, max_new_tokens=NEW, device=prompts.device
    )
    return [best.ids for best, *_ in found]


def generated_by_peer(model: Any, ids: Tensor, beams: int) -> Tensor:
    """What Hugging Face's model returns for each row."""
    found: Tensor = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW,
        do_sample=False,
        num_beams=beams,
        use_cache=True,
    )
    return found


def continued_by_peer(model: Any, prompts: Tensor, beams: int = 1) -> list[list[int]]:
    """The new tokens of each row, by Hugging Face."""
    found = generated_by_peer(model, prompts, beams)
    new: list[list[int]] = found[:, prompts.shape[1] :].tolist()
    return new


def check_same_work(
    model: LanguageModel, theirs: Any, prompts: Tensor, ours: list[list[int]], beams: int
) -> None:
    """Stop where Hugging Face's model computes something else, so that times don't compare.

    Logits and greedy tokens are compared in float64. Of beams, the numbers of tokens are compared:
    Hugging Face adds their scores up in float32, and scores 3e-5 apart change places.
    """
    exact, peer = deepcopy(model).double(), deepcopy(theirs).double()
    torch.testing.assert_close(exact(prompts), peer(prompts).logits, rtol=1e-10, atol=1e-10)
    assert continued(exact, prompts) == continued_by_peer(peer, prompts), "other greedy tokens"
    lengths = [len(row) for row in continued_by_peer(theirs, prompts, beams)]
    assert [len(row) for row in ours] == lengths, "other numbers of new tokens"


def generation(
    config: DecoderConfig,
    rows: int,
    rounds: int,
    device: torch.device,
    beams: int = 1,
    prompt: int = PROMPT,
    precision: Precision = "float32",
) -> Generation:
    """Ours and Hugging Face's in float32 with the same weights, doing the same work."""
    greedy = partial(continued, precision=precision)
    ours = greedy if beams == 1 else partial(searched, beams=beams)
    model = LanguageModel(config, VOCABULARY)
    scatter(model)
    model.to(device).eval()
    prompts = torch.randint(MASK + 1, VOCABULARY, (rows, prompt), device=device)
    calls: dict[str, measure.Call] = {OURS: partial(ours, model, prompts)}
    if HUGGING_FACE.installed:
        theirs = HUGGING_FACE.make(config, VOCABULARY).to(device).eval()
        load_ours(theirs, model)
        calls[HUGGING_FACE.name] = partial(continued_by_peer, theirs, prompts, beams)
        check_same_work(model, theirs, prompts, ours(model, prompts), beams)
    size, moved = bytes_read(model), {}
    for name, make in (("read", measure.reading), ("copy", measure.copying)):
        calls[name], moved[name] = make(size, device)
    times = measure.interleaved(calls, rounds, device)
    bandwidth = max(moved[name] / statistics.median(times.pop(name)) for name in moved)
    return Generation(rows=rows, precision=precision, times=times, bytes=size, bandwidth=bandwidth)


def bytes_read(model: LanguageModel) -> int:
    """Of the weights that each token needs: of embeddings and positions it takes a row only."""
    assert isinstance(model.body, Decoder)
    needed = (model.body.layers, model.body.norm, model.head)
    return sum(weight.nbytes for module in needed for weight in module.parameters())


# Evaluation


def untrained(config: DecoderConfig, questions: Sequence[Example], device: torch.device) -> Run:
    """A run that never ends an answer, so that all are equally long.

    ⁇, which would end it, always scores 0, and that is never the best of many random scores.
    """
    recipe = msgspec.structs.replace(RECIPES["course"], model=config)
    tokenizer = train_tokenizer(CharactersConfig(), [question.text for question in questions])
    run = Run.new(Path(), recipe, tokenizer, {})
    scatter(run.language_model)
    torch.nn.init.zeros_(run.language_model.head.weight[MASK])
    run.model.to(device).eval()
    return run


@torch.no_grad()
def answer_alone(run: Run, question: Example, device: torch.device) -> str:
    """A full pass over the growing text for each character."""
    prompt = run.template.prompt.around(run.tokenizer.encode(question.text))
    asked = run.template.open_answer(prompt)
    ids = torch.tensor([asked], device=device)
    for _ in range(CHARACTERS):
        ids = torch.cat([ids, run.model(ids)[:, -1:].argmax(-1)], 1)
    return run.tokenizer.decode(ids[0, len(asked) :].tolist()).strip()


def evaluation(
    config: DecoderConfig,
    questions: Sequence[Example],
    sample: int,
    rounds: int,
    device: torch.device,
) -> Evaluation:
    """Ours for all questions, the loop for the first; their answers have to be the same."""
    run, environment = (
        untrained(config, questions, device),
        ExecutionEnvironment.choose(str(device)),
    )

    def together() -> list[Answer]:
        return answer(
            run, questions, environment, signals=quick_signals(), max_new_tokens=CHARACTERS
        )

    def one_by_one() -> list[str]:
        return [answer_alone(run, question, device) for question in questions[:sample]]

    same = [answer.answered for answer in together()[:sample]] == one_by_one()
    assert same, "the loop's answers aren't ours, so its time tells nothing"
    times = measure.interleaved({OURS: together, LOOP: one_by_one}, rounds, device)
    times[LOOP] = [taken * len(questions) / sample for taken in times[LOOP]]
    return Evaluation(questions=len(questions), sample=sample, times=times)


# Tables


def claims(
    generations: Sequence[Generation], evaluated: Evaluation
) -> dict[str, tuple[float, float]]:
    """Figures and their goals."""
    found = {
        f"batch {g.rows}, {g.precision}: Regard's speed / {HUGGING_FACE.name}'s": (
            g.gain.median,
            g.goal,
        )
        for g in generations
        if g.gain and g.goal
    }
    name = f"evaluation of {evaluated.questions} questions: Regard's speed / the loop's"
    return found | {name: (evaluated.gain.median, EVALUATION)}


def generation_table(generations: Sequence[Generation]) -> Table:
    """A row a batch and model."""
    made = measure.table(
        f"{NEW} new tokens after {PROMPT}",
        *("model", "batch", "Regard's precision", "new tokens/s", "Regard's / its", "quartiles"),
        *("goal", "GB/s machine", "time / floor"),
    )
    for g in generations:
        for name, times in g.times.items():
            gain = measure.Ratio.of(times, g.times[OURS])
            made.add_row(
                name,
                str(g.rows),
                g.precision,
                f"{g.speed(name):.0f}",
                f"{gain.median:.2f}",
                f"{gain.low:.2f}–{gain.high:.2f}",
                f"{g.goal or ''}" if name == HUGGING_FACE.name else "",
                f"{g.bandwidth / 1e9:.1f}",
                f"{statistics.median(times) / g.floor(name):.2f}",
            )
    return made


def evaluation_table(evaluated: Evaluation) -> Table:
    """A row a way of evaluating."""
    title = f"{evaluated.questions} questions answered with {CHARACTERS} characters"
    columns = "way", "seconds", "questions/s", "time / Regard's", "quartiles"
    made = measure.table(title, *columns)
    for name, times in evaluated.times.items():
        ratio, seconds = measure.Ratio.of(times, evaluated.times[OURS]), statistics.median(times)
        made.add_row(
            name,
            f"{seconds:.2f}",
            f"{evaluated.questions / seconds:.0f}",
            f"{ratio.median:.1f}",
            f"{ratio.low:.1f}–{ratio.high:.1f}",
        )
    return made


def notes(evaluated: Evaluation) -> list[str]:
    """What was left out, checked and scaled."""
    agree = f"generation: {HUGGING_FACE.name}, with the same weights, gives the same tokens"
    return [
        *([agree] if HUGGING_FACE.installed else not_installed([HUGGING_FACE])),
        f"evaluation: the loop answered the first {evaluated.sample} questions, as Regard did; its "
        f"time is scaled to {evaluated.questions}",
    ]


def document(
    arguments: argparse.Namespace, generations: Sequence[Generation], evaluated: Evaluation
) -> dict[str, Any]:
    """All numbers, for decoding.json."""
    return {
        "machine": measure.describe(torch.device(arguments.device)),
        "setting": {
            "rounds": arguments.rounds,
            "prompt": PROMPT,
            "new": NEW,
            "characters": CHARACTERS,
            "model": msgspec.to_builtins(SIZE),
            "vocabulary": VOCABULARY,
        },
        "notes": notes(evaluated),
        "generation": [
            asdict(g)
            | {
                "floor": {name: g.floor(name) for name in g.times},
                "tokens_per_second": {name: g.speed(name) for name in g.times},
                "gain": asdict(g.gain) if g.gain else None,
            }
            for g in generations
        ],
        "evaluation": asdict(evaluated) | {"gain": asdict(evaluated.gain)},
        "claims": {
            claim: {"figure": figure, "at_least": at_least, "holds": figure >= at_least}
            for claim, (figure, at_least) in claims(generations, evaluated).items()
        },
    }


def main() -> None:
    """Measure, print, write."""
    arguments = measure.parse(measure.options(__doc__, rounds=7))
    device, rounds, console = torch.device(arguments.device), arguments.rounds, Console(width=140)
    generations = [
        generation(SIZE, rows, rounds, device, precision=precision)
        for precision, goals in GOALS.items()
        for rows in goals
    ]
    console.print(generation_table(generations))
    questions = make_world().questions("absent")[:QUESTIONS]  # of some 30 characters each
    evaluated = evaluation(SIZE, questions, SAMPLE, rounds, device)
    console.print(evaluation_table(evaluated))
    for note in notes(evaluated):
        console.print(f"- {note}")
    for claim, (found, at_least) in claims(generations, evaluated).items():
        console.print(f"{claim}: {measure.verdict(found, at_least)}")
    measure.save(arguments.out, "decoding", document(arguments, generations, evaluated))


if __name__ == "__main__":
    main()
