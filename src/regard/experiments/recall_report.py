"""Report of the experiment on recalled and invented answers."""

from collections.abc import Mapping

from regard.config import to_toml
from regard.corpus.evidence import VERDICTS
from regard.environment import ExecutionEnvironment
from regard.evaluation.evaluate import signal_aurocs
from regard.evaluation.report import (
    SHOWN,
    AnswerTable,
    Figure,
    Report,
    ShownAnswer,
    answer_tables,
    attention_view,
    guaranteed_point,
    risk_coverage_figure,
)
from regard.experiments.recall import PRETRAINED, Recall, person_verdict
from regard.experiments.report_figures import accuracies, confidence, loss_curves
from regard.metrics import accuracy
from regard.tasks.examples import majority_answer
from regard.tasks.world import Group


def recall_report(found: Recall, environment: ExecutionEnvironment) -> Report:
    """Return all results of the experiment as a page."""
    signal, run = found.chosen.signal, found.arms[PRETRAINED]
    return Report(
        title="Recalled or made up?",
        summary=(
            "A small Transformer read the biographies of a fictional world and learned to answer "
            "questions about half of its people. It is evaluated on the other half, who occur in "
            "the text only, and on absent people. It answers both equally fluently; the signal "
            f"“{signal}” separates them with an AUROC of {found.chosen.auroc:.3f} (selected on "
            "half of the people, measured on the other)."
        ),
        signal=signal,
        results=_results(found),
        examples=_examples(found),
        picture=_picture(found),
        figures=_figures(found),
        attention=attention_view(run, found.text_only[0], environment),
        tables=_tables(found),
        facts=environment.describe()
        | {
            "seed": run.recipe.seed,
            "parameters": f"{run.n_parameters:,}",
            "seconds": round(found.seconds, 1),
            "peak memory": found.peak_memory,
        },
        configuration=to_toml(run.recipe),
    )


def _results(found: Recall) -> dict[str, Mapping[str, str]]:
    right, wrong = ([a for a in found.text_only if a.correct is kind] for kind in (True, False))
    verdicts = {
        GROUPS[group]: ", ".join(f"{n} {name}" for name, n in counts.items())
        for group, counts in found.verdicts.items()
    }
    return {
        "Accuracy on people in the text only": {
            name: interval.percent() for name, interval in found.accuracies.items()
        },
        "AUROC, text only against absent": {
            name: f"{area:.3f}" for name, area in found.chosen.all_aurocs.items()
        },
        "AUROC, right against wrong": {
            name: str(area) for name, area in signal_aurocs(right, wrong).items()
        },
        "Verdicts by group": verdicts,
        "Abstention": _abstention(found),
        "Invented answers": _fallbacks(found),
    }


GROUPS: dict[Group, str] = {
    "qa_train": "people in QA training",
    "text_only": "people in the text only",
    "absent": "absent people",
}
EXAMPLES = 4
"""Answers at the top of the page."""


def _examples(found: Recall) -> list[ShownAnswer]:
    """Return the most confident answer of each verdict.

    If a verdict doesn't occur, the least confident of the other answers fill up the list.
    """
    people = [*found.world.group("text_only"), *found.world.group("absent")]
    answers = zip(people, [*found.text_only, *found.absent], strict=True)
    signal = found.chosen.signal
    shown = [
        ShownAnswer(
            answer=answer,
            confidence=answer.scores[signal],
            stated=person.statements,
            verdict=person_verdict(person, answer),
        )
        for person, answer in answers
    ]
    shown.sort(key=lambda one: -one.confidence)
    first = {one.verdict: one for one in reversed(shown)}
    chosen = [first[name] for name in VERDICTS if name in first]
    others = (one for one in reversed(shown) if one not in chosen)
    return [*chosen, *others][:EXAMPLES]


def _abstention(found: Recall) -> dict[str, str]:
    """Return the numbers of answered and of wrongly answered questions under abstention.

    Half of the questions about people in the text only and about absent people calibrate the
    threshold, and a third of that half the confidence; the numbers are for the other half.
    """
    guarantee, answers = found.abstention.guarantee, found.abstention.answers
    given = [answer for answer in answers if not answer.abstained]
    wrong = sum(not answer.correct for answer in given)
    name = (
        f"calibrated to at most {guarantee.max_error:.0%} wrong, with probability "
        f"{guarantee.level:.0%}, on half of the questions; of the others"
    )
    return {name: f"{len(given)} of {len(answers)} answered, {wrong} wrongly"}


def _fallbacks(found: Recall) -> dict[str, str]:
    """Return the shares of invented answers that the text could have suggested."""
    invented = [answer.answered for answer in found.absent]
    commonest = majority_answer(found.world.questions("qa_train"))
    common = accuracy([place == commonest for place in invented])
    namesake = "a birthplace of someone with that"
    return {
        "the most frequent place": common.percent(),
        f"{namesake} first name": _namesakes(found, 0),
        f"{namesake} last name": _namesakes(found, 1),
    }


def _namesakes(found: Recall, part: int) -> str:
    """Return the share of invented answers that are places of people with the same name part.

    `part` is 0 for the first name, 1 for the last name. The chance level is the same share with
    answers assigned to people at random.
    """
    places: dict[str, set[str]] = {}
    for person in found.world.people:
        if person.statements:
            places.setdefault(person.name.split()[part], set()).add(person.place)
    suggested = [places[person.name.split()[part]] for person in found.world.group("absent")]
    invented = [answer.answered for answer in found.absent]
    hits = [place in known for place, known in zip(invented, suggested, strict=True)]
    pairs = [place in known for place in invented for known in suggested]
    return f"{accuracy(hits).percent()}, by chance {sum(pairs) / len(pairs):.1%}"


def _picture(found: Recall) -> Figure:
    signal = found.chosen.signal
    name = signal.capitalize()
    return confidence(
        {"text only": found.text_only, "absent": found.absent},
        signal,
        title=f"{name} of both groups",
        caption=f"{name} of people in the text only, and of absent people.",
    )


def _figures(found: Recall) -> list[Figure]:
    signal, text_only, absent = found.chosen.signal, found.text_only, found.absent
    abstention = found.abstention
    return [
        accuracies(found.accuracies),
        loss_curves(found.arms, held_out=PRETRAINED),
        risk_coverage_figure(
            {
                f"all people, by {signal}": ([*text_only, *absent], signal),
                "all people, by calibrated confidence": (abstention.answers, "confidence"),
                "text only": (text_only, signal),
            },
            points=guaranteed_point(abstention.guarantee, abstention.answers),
        ),
    ]


def _tables(found: Recall) -> list[AnswerTable]:
    signal, absent = found.chosen.signal, found.absent
    stated = {p.question().text: p.statements for p in found.world.group("text_only")}
    invented = sorted(absent, key=lambda a: -a.scores[signal])[:SHOWN]
    return [
        *answer_tables(found.text_only, signal, stated),
        AnswerTable(
            title="Absent people",
            note=f"{len(absent)} people who are absent from the text: every answer is invented. "
            "The most confident first",
            rows=[ShownAnswer(answer=a, confidence=a.scores[signal]) for a in invented],
            invented=True,
        ),
    ]
