"""Recalled or made up? Pretrain on text, ask, and know which answers to trust.

Stanford CS224N's assignment 5 as an experiment with known truth: a fictional world takes the place
of Wikipedia. Some people are asked about in training, some are only told of in the text, some are
never mentioned. A model that learned to read its memory answers about those it was told of; what it
says of the others is made up, and the study measures which signal tells.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.evaluation import figures
from regard.evaluation.answers import Answer, answer_questions
from regard.evaluation.attention import attention_figure
from regard.evaluation.confidence import Chosen, choose_signal
from regard.evaluation.evaluate import (
    ATTENTION_CAPTION,
    SHOWN,
    answer_tables,
    baseline_accuracy,
    risk_coverage_figure,
)
from regard.evaluation.report import AnswerTable, Figure, Report, ShownAnswer
from regard.metrics import Interval, accuracy
from regard.runs.machine import Machine
from regard.runs.memory import peak_memory_mb
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.runs.toml import to_toml
from regard.tasks.questions import majority_answer
from regard.tasks.world import QUESTIONS, Person, World, WorldConfig, make_world
from regard.tasks.world_files import save_world
from regard.text.corpus import Document
from regard.training.loop import Settings
from regard.training.progress import read_metrics
from regard.training.stages import plan_pretraining, plan_questions


@dataclass(frozen=True, kw_only=True)
class Recall:
    """What the study found."""

    held_out: Interval
    """Accuracy of the pretrained model on people whom it was told of, but never asked about."""
    no_pretraining: Interval
    """The same of a model that was trained on the questions alone."""
    untrained: Interval
    majority: Interval
    chosen: Chosen
    """The signal that tells people told of from people never mentioned."""
    seconds: float
    peak_memory_mb: float
    report: Path

    def figures(self) -> dict[str, float]:
        """The figures of the final table."""
        return {
            "held_out_accuracy": self.held_out.value,
            "no_pretraining_accuracy": self.no_pretraining.value,
            "majority_accuracy": self.majority.value,
            "auroc": self.chosen.auroc,
            "seconds": round(self.seconds, 1),
            "peak_memory_mb": round(self.peak_memory_mb, 1),
        }


def recall(out: Path, world_config: WorldConfig, recipe: Recipe, settings: Settings) -> Recall:
    """Run the study; world, runs and report are written below `out`."""
    started = time.perf_counter()
    world = make_world(world_config)
    save_world(world, out / "world")
    pretrained, plain, untrained = _train_arms(out, world, recipe, settings)
    machine = settings.machine

    questions = world.questions("told")

    def ask(run: Run) -> list[Answer]:
        return answer_questions(run, questions, machine, paraphrases=WORDINGS)

    told = ask(pretrained)
    unseen = answer_questions(pretrained, world.questions("unseen"), machine, paraphrases=WORDINGS)
    commonest = majority_answer(world.questions("asked"))
    found = Recall(
        held_out=accuracy([a.correct for a in told]),
        no_pretraining=accuracy([a.correct for a in ask(plain)]),
        untrained=accuracy([a.correct for a in ask(untrained)]),
        majority=baseline_accuracy(questions, commonest),
        chosen=choose_signal(told, unseen, seed=recipe.seed),
        seconds=time.perf_counter() - started,
        peak_memory_mb=peak_memory_mb(),
        report=out / "report.html",
    )
    page = _report(found, world, pretrained, plain, told, unseen, machine)
    page.save(found.report)
    return found


WORDINGS = tuple(wording.replace("{name}", "{}") for wording in QUESTIONS[1:])
"""The other wordings of the question, to see whether the answers agree."""


def _train_arms(
    out: Path, world: World, recipe: Recipe, settings: Settings
) -> tuple[Run, Run, Run]:
    """A model pretrained on the text, one trained on the questions alone, one not trained."""
    corpus = [
        Document(text, f"{out / 'world' / 'wiki.txt'}:{number}")
        for number, text in enumerate(world.documents, start=1)
    ]
    asked = world.questions("asked", QUESTIONS)
    pretraining = plan_pretraining(corpus, out / "pretrained", recipe, questions=asked)
    tokenizer = pretraining.run.tokenizer
    untrained = Run.new(out / "untrained", recipe, tokenizer, {})
    untrained.model.to(settings.machine.device).eval()
    pretraining.execute(settings)
    plain = plan_questions(asked, out / "not-pretrained", recipe, tokenizer=tokenizer)
    plain.execute(settings)
    return pretraining.run, plain.run, untrained


def _report(
    found: Recall,
    world: World,
    pretrained: Run,
    plain: Run,
    told: Sequence[Answer],
    unseen: Sequence[Answer],
    machine: Machine,
) -> Report:
    signal = found.chosen.signal
    return Report(
        title="Recalled or made up?",
        summary=(
            "A small Transformer read the biographies of a fictional world and learned to answer "
            "questions about half of its people. Here it is asked about the other half, of whom "
            "the text tells, and about people whom the text never mentions. It answers both with "
            f"the same ease; the signal “{signal}” tells them apart with an AUROC of "
            f"{found.chosen.auroc:.3f} (chosen on half of the people, measured on the other)."
        ),
        signal=signal,
        results=_results(found) | _fallbacks(world, unseen),
        figures=_figures(found, pretrained, plain, told, unseen, machine),
        tables=_tables(world, told, unseen, signal),
        facts=machine.describe()
        | {
            "seed": pretrained.recipe.seed,
            "parameters": f"{pretrained.n_parameters:,}",
            "seconds": round(found.seconds, 1),
            "peak memory": f"{found.peak_memory_mb:,.0f} MB",
        },
        configuration=to_toml(pretrained.recipe),
    )


def _accuracies(found: Recall) -> dict[str, Interval]:
    return {
        "pretrained": found.held_out,
        "not pretrained": found.no_pretraining,
        "untrained": found.untrained,
        "always the commonest place": found.majority,
    }


def _results(found: Recall) -> dict[str, str]:
    accuracies = {
        f"accuracy on people told of, {name}": interval.percent()
        for name, interval in _accuracies(found).items()
    }
    signals = {
        f"AUROC told of / never mentioned, {name}": f"{area:.3f}"
        for name, area in found.chosen.all_aurocs.items()
    }
    return accuracies | signals


def _fallbacks(world: World, unseen: Sequence[Answer]) -> dict[str, str]:
    """What invented answers are made of: shares of them that the text could have suggested."""
    mentioned = [person for person in world.people if person.statements]
    commonest = majority_answer(world.questions("asked"))

    def share(of_namesakes: Callable[[Person, Person], bool]) -> str:
        """How many get a place where someone was born with whom they share a name."""
        hits = [
            answer.answered in {other.place for other in mentioned if of_namesakes(person, other)}
            for person, answer in zip(world.group("unseen"), unseen, strict=True)
        ]
        return accuracy(hits).percent()

    return {
        "never mentioned, answered with the commonest place": accuracy(
            [answer.answered == commonest for answer in unseen]
        ).percent(),
        "never mentioned, answered with a place of someone with that last name": share(
            lambda person, other: person.name.split()[1] == other.name.split()[1]
        ),
        "never mentioned, answered with a place of someone with that first name": share(
            lambda person, other: person.name.split()[0] == other.name.split()[0]
        ),
    }


def _figures(
    found: Recall,
    pretrained: Run,
    plain: Run,
    told: Sequence[Answer],
    unseen: Sequence[Answer],
    machine: Machine,
) -> list[Figure]:
    signal = found.chosen.signal
    return [
        Figure(
            svg=figures.interval_chart(
                _accuracies(found), x="accuracy on people told of", title="Accuracy"
            ),
            caption="Who knows where people were born? Lines are 95 % intervals.",
        ),
        _loss_curves({"pretrained": pretrained, "not pretrained": plain}),
        risk_coverage_figure(
            {
                f"all people, by {signal}": [*told, *unseen],
                "told of only": list(told),
            },
            signal,
        ),
        Figure(
            svg=figures.histogram(
                {
                    "told of": [a.signals[signal] for a in told],
                    "never mentioned": [a.signals[signal] for a in unseen],
                },
                x=signal,
                title="Confidence of both groups",
            ),
            caption="How confident the model is about people told of and people never mentioned.",
        ),
        Figure(svg=attention_figure(pretrained, told[0], machine), caption=ATTENTION_CAPTION),
    ]


def _loss_curves(runs: dict[str, Run]) -> Figure:
    curves = {}
    for name, run in runs.items():
        records = read_metrics(run.path / "metrics.jsonl")
        curves[name] = ([r["seconds"] for r in records], [r["loss"] for r in records])
    return Figure(
        svg=figures.line_chart(
            curves, x="seconds of training", y="loss (nats a token)", title="Loss", log_y=True
        ),
        caption="Loss on the training batches; while pretraining, a fifth of them are questions.",
    )


def _tables(
    world: World, told: Sequence[Answer], unseen: Sequence[Answer], signal: str
) -> list[AnswerTable]:
    stated = {p.question().text: p.statements for p in world.group("told")}
    invented = sorted(unseen, key=lambda a: -a.signals[signal])[:SHOWN]
    return [
        *answer_tables(told, signal, stated),
        AnswerTable(
            title="Never mentioned",
            note=f"{len(unseen)} people of whom the text says nothing: every answer is made up. "
            "The most confident first",
            rows=[ShownAnswer(answer=a, confidence=a.signals[signal]) for a in invented],
        ),
    ]
