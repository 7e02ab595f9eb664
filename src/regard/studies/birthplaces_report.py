"""The report of the study "does pretraining matter?"."""

from collections.abc import Mapping

from regard.config import to_toml
from regard.evaluation import figures
from regard.evaluation.evaluate import answer_tables, risk_coverage_figure
from regard.evaluation.report import Figure, Report, attention_view
from regard.metrics import Interval
from regard.runs.environment import ExecutionEnvironment
from regard.studies.birthplaces import ARMS, Arm, Data
from regard.studies.loss_curves import loss_curves


def birthplaces_report(
    arms: Mapping[str, Arm], data: Data, environment: ExecutionEnvironment
) -> Report:
    """All that the study found, as a page; answers are those of the first arm."""
    first = next(iter(arms.values()))
    signal = first.evaluation.confidence.signal if first.evaluation.confidence else "probability"
    return Report(
        title="Does pretraining matter?",
        summary=(
            f"A small Transformer was asked where {len(data.text_only)} people in the text only "
            f"were born; it was trained on {len(data.qa_train)} questions about others. "
            f"The answers below are those of the model that was {ARMS[first.score.arm]}."
        ),
        signal=signal,
        results={key: value for arm in arms.values() for key, value in _results(arm).items()},
        figures=_figures(arms, first, signal),
        attention=attention_view(first.run, first.evaluation.answers[0], environment),
        tables=answer_tables(first.evaluation.answers, signal, _stated(data)),
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
        "what else their sentences say": score.mistakes.from_their_sentence,
        "the commonest place": score.mistakes.commonest,
        "anything else": score.mistakes.other,
    }
    return (
        {f"{score.arm}: accuracy": _interval(arm).percent()}
        | {f"{score.arm}: wrong answers that are {what}": str(n) for what, n in wrong.items()}
        | {
            f"{score.arm}: AUROC right against wrong, {s}": f"{a:.3f}"
            for s, a in score.auroc.items()
        }
    )


def _interval(arm: Arm) -> Interval:
    return Interval(arm.score.accuracy, arm.score.low, arm.score.high)


def _figures(arms: Mapping[str, Arm], first: Arm, signal: str) -> list[Figure]:
    answers = first.evaluation.answers
    confidence = {
        kind: [answer.signals[signal] for answer in answers if answer.correct is right]
        for kind, right in (("right", True), ("wrong", False))
    }
    return [
        Figure(
            svg=figures.interval_chart(
                {name: _interval(arm) for name, arm in arms.items()},
                x="accuracy on people in the text only",
                title="Accuracy",
            ),
            caption="Who knows where people were born? Lines are 95 % intervals.",
        ),
        loss_curves({run.path.name: run for arm in arms.values() for run in arm.stages}),
        risk_coverage_figure({f"by {signal}": answers}, signal),
        Figure(
            svg=figures.histogram(
                {kind: values for kind, values in confidence.items() if values},
                x=signal,
                title="Confidence of right and wrong answers",
            ),
            caption="How confident the model is where it is right and where it is wrong.",
        ),
    ]


def _stated(data: Data) -> dict[str, list[str]]:
    """What the text says of each person who is asked about."""
    return dict(zip((q.text for q in data.text_only), data.sentences(), strict=True))
