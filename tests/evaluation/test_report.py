"""report.html is one file that works offline."""

from html.parser import HTMLParser
from pathlib import Path

from regard.evaluation.answers import Answer
from regard.evaluation.report import AnswerTable, Figure, Report, ShownAnswer


def answer(**changes: object) -> Answer:
    fields = {
        "question": "Where was <Ada> & Co born?",
        "expected": "Ilmoford",
        "answered": "</script><img src=x onerror=alert(1)>",
        "signals": {"probability": 0.25},
    }
    return Answer(**(fields | changes))  # type: ignore[arg-type]


def report() -> Report:
    rows = [
        ShownAnswer(answer=answer(), confidence=0.25, stated=["Ada comes from Ilmoford."]),
        ShownAnswer(answer=answer(answered="Ilmoford"), confidence=1.0),
        ShownAnswer(answer=answer(answered="", expected=None), confidence=0.0),
    ]
    return Report(
        title="A report",
        summary="What was found.",
        signal="probability",
        results={"accuracy": "50.0%"},
        figures=[Figure(svg="<svg></svg>", caption="A drawing")],
        tables=[
            AnswerTable(title="Answers", note="all", rows=rows),
            AnswerTable(title="Inventions", note="all", rows=rows[2:], invented=True),
        ],
        facts={"torch": "2", "seed": 0},
        configuration="a = '<b>'",
    )


class Collector(HTMLParser):
    """Gathers tags, what they load, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [v for name, v in attrs if name in ("src", "href") and v]

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed() -> Collector:
    collector = Collector()
    collector.feed(report().html())
    return collector


def test_nothing_is_fetched() -> None:
    assert all(place.startswith("data:") for place in parsed().loaded)
    assert "http" not in report().html().replace("http-equiv", "")


def test_what_a_model_says_is_shown_as_text() -> None:
    page = parsed()
    assert "img" not in page.tags
    assert "script" not in page.tags
    assert "</script><img src=x onerror=alert(1)>" in page.text
    assert "Where was <Ada> & Co born?" in page.text


def test_right_wrong_and_unknown_are_told_apart() -> None:
    text = " ".join(parsed().text.split())
    assert "✓ Ilmoford" in text
    assert "✗ </script>" in text
    assert "Ada comes from Ilmoford." in text
    assert "Answer: Ilmoford" in text
    assert "(nothing) 0 Not known." in text
    assert "✗ (nothing) 0 The text says nothing." in text
    assert text.count("✗") == 2


def test_saving_writes_the_page(tmp_path: Path) -> None:
    report().save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == report().html()
