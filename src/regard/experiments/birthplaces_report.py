"""Report of the effect of pretraining on answers about birthplaces."""

from collections.abc import Mapping
from dataclasses import astuple

from regard.config import to_toml
from regard.drawing import interval_chart
from regard.environment import ExecutionEnvironment
from regard.evaluation.report import (
    Figure,
    Report,
    answer_tables,
    attention_view,
    risk_coverage_figure,
)
from regard.experiments.birthplaces import ARMS, Arm, Data
from regard.experiments.report_figures import accuracies, confidence, loss_curves
from regard.metrics import Interval


def birthplaces_report(
    arms: Mapping[str, Arm], data: Data, environment: ExecutionEnvironment
) -> Report:
    """Return all results of the experiment as a page; answers are those of the first arm."""
    first = next(iter(arms.values()))
    signal = first.evaluation.confidence.signal if first.evaluation.confidence else "confidence"
    stated = dict(zip((q.text for q in data.text_only), data.sentences(), strict=True))
    return Report(
        title="Does pretraining matter?",
        summary=(
            f"A small Transformer was asked where {len(data.text_only)} people in the text only "
            f"were born; it was trained on {len(data.qa_train)} questions about others. "
            f"The answers below are those of the model that was {ARMS[first.score.arm]}."
        ),
        signal=signal,
        results={f"Arm {name}": _results(arm) for name, arm in arms.items()},
        figures=_figures(arms, first, signal),
        attention=attention_view(first.run, first.evaluation.answers[0], environment),
        tables=answer_tables(first.evaluation.answers, signal, stated),
        facts=environment.describe()
        | {
            "seed": first.score.seed,
            "parameters": f"{first.score.parameters:,}",
            "seconds of training": first.score.training_seconds,
            "seconds of evaluation": first.score.evaluation_seconds,
        },
        configuration=to_toml(first.run.recipe),
    )


def _results(arm: Arm) -> dict[str, str]:
    score = arm.score
    wrong = {
        "where the text doesn't state the right one": score.mistakes.not_stated,
        "other words of their sentences": score.mistakes.from_their_sentence,
        "of people with the same first or last name": score.mistakes.of_a_namesake,
        "the most frequent place": score.mistakes.commonest,
        "others": score.mistakes.other,
    }
    return (
        {"accuracy": _interval(arm).percent()}
        | {f"wrong answers: {kind}": str(n) for kind, n in wrong.items()}
        | {f"AUROC {name}": str(area) for name, area in _aurocs(arm).items()}
    )


def _aurocs(arm: Arm) -> dict[str, Interval]:
    """Return the AUROC of each signal for both kinds of doubt."""
    kinds = {
        "right against wrong": arm.score.right_or_wrong,
        "mentioned against absent": arm.score.mentioned_or_absent,
    }
    return {
        f"{kind}, {signal}": area for kind, found in kinds.items() for signal, area in found.items()
    }


def _interval(arm: Arm) -> Interval:
    return Interval(arm.score.accuracy, arm.score.low, arm.score.high)


def _figures(arms: Mapping[str, Arm], first: Arm, signal: str) -> list[Figure]:
    answers = first.evaluation.answers
    groups = {
        "right": [answer for answer in answers if answer.correct],
        "wrong": [answer for answer in answers if not answer.correct],
        "absent": first.absent,
    }
    aurocs = _aurocs(first)
    return [
        accuracies({name: _interval(arm) for name, arm in arms.items()}),
        loss_curves({run.path.name: run for arm in arms.values() for run in arm.stages}),
        risk_coverage_figure({f"by {name}": (answers, name) for name in answers[0].scores}),
        *([_auroc_figure(aurocs, first.score.arm)] if aurocs else []),
        confidence(
            groups,
            signal,
            title="Confidence of right and wrong answers",
            caption="Confidence of right answers, wrong answers, and answers about absent people.",
        ),
    ]


def _auroc_figure(aurocs: Mapping[str, Interval], arm: str) -> Figure:
    bars = {name: astuple(interval) for name, interval in aurocs.items()}
    return Figure(
        svg=interval_chart(bars, x="AUROC", title="AUROC of each signal"),
        caption=f"AUROC of each signal, {arm}, with 95 % intervals. 0.5 is chance. Two kinds of "
        "doubt: whether the answer is right, and whether the text mentions the person.",
    )
