"""report.html is one file that works offline."""

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from made_answers import made_answer
from regard.config import override
from regard.corpus.evidence import VERDICTS
from regard.environment import ExecutionEnvironment
from regard.evaluation.answers import Answer
from regard.evaluation.evaluate import evaluate_questions
from regard.evaluation.report import (
    LONGEST,
    AnswerTable,
    Figure,
    Report,
    ShownAnswer,
    answer_tables,
    attention_view,
    evaluation_report,
)
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.tasks.examples import Example, encode_questions
from regard.text.config import BytePairsConfig, CharactersConfig
from regard.text.tokenizer import train_tokenizer
from tiny_edited import family_run

QUESTION = "Where was <Ada> & Co born?"
HOSTILE = "</script><img src=x onerror=alert(1)>"


def answer(**changes: object) -> Answer:
    fields = {"answered": HOSTILE, "expected": "Ilmoford"} | changes
    return made_answer(**({"question": QUESTION} | fields), confidence=0.25)  # type: ignore[arg-type]


def run(*settings: str) -> Run:
    """An untrained model whose tokens are characters."""
    recipe = override(RECIPES["text"], [*settings, "model.d_model=16", "model.context_length=128"])
    made = Run.new(
        Path("runs/tiny"), recipe, train_tokenizer(CharactersConfig(), [QUESTION, HOSTILE]), {}
    )
    made.model.eval()
    return made


def view(question: str = QUESTION) -> str:
    """What a model of two layers with two heads looks at."""
    model = run("model.n_layers=2", "model.n_heads=2")
    return attention_view(model, answer(question=question), ExecutionEnvironment.choose("cpu"))


def report() -> Report:
    rows = [
        ShownAnswer(answer=answer(), confidence=0.25, stated=["Ada comes from Ilmoford."]),
        ShownAnswer(answer=answer(answered="Ilmoford"), confidence=1.0),
        ShownAnswer(answer=answer(answered="", expected=None), confidence=0.0),
    ]
    return Report(
        title="A report",
        summary="What was found.",
        signal="confidence",
        results={"Scores": {"accuracy": "50.0%"}},
        figures=[Figure(svg="<svg></svg>", caption="A drawing")],
        attention=view(),
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
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [v for name, v in attrs if name == "id" and v]
        self.loaded += [v for name, v in attrs if name in ("src", "href") and v]

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(page: str | None = None) -> Collector:
    collector = Collector()
    collector.feed(page or report().html())
    return collector


def test_nothing_is_fetched() -> None:
    assert all(place.startswith("data:") for place in parsed().loaded)
    namespace = "http://www.w3.org/2000/svg"  # a name, which no browser opens
    assert set(re.findall(r"\w+://[^\s\"'&<]*", report().html())) == {namespace}


def test_only_the_script_of_the_view_may_run() -> None:
    page = report().html()
    policy = unescape(re.findall(r'Content-Security-Policy" content="([^"]+)"', page)[0])
    (script,) = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_the_view_shows_the_attention_of_the_model() -> None:
    page = parsed(view())
    assert page.tags.count("script") == 2, "the data's and the module's"
    assert len(page.ids) == len(set(page.ids))
    question = QUESTION.replace("<", "\\u003c")
    assert f"While answering: {question}" in page.text


def test_a_token_stays_text_in_the_view() -> None:
    page = parsed(view(HOSTILE))
    assert "img" not in page.tags
    assert page.tags.count("script") == 2


def test_a_long_question_keeps_its_end() -> None:
    short, long = ("where ?" + "abe" * n for n in (LONGEST // 3, LONGEST // 2))
    model = run("model.n_layers=2", "model.n_heads=2")
    sizes = []
    for question in (short, long):
        shown = answer(question=question)
        inside = attention_view(model, shown, ExecutionEnvironment.choose("cpu"))
        data = json.loads(re.search(r'application/json">(.*?)</script>', inside)[1])  # type: ignore[index]
        (one,) = data["panels"][0]["maps"]
        assert len(one["keys"]) == LONGEST
        assert one["keys"][-2:] == ["e", "<sep>"]
        sizes.append(len(one["layers"][0]["heads"][0]["values"]))
    assert sizes[0] == sizes[1]


def test_the_view_of_a_conversation_has_its_history(trained: Path) -> None:
    run, environment = Run.load(trained), ExecutionEnvironment.choose("cpu")
    asked = Example(text="Ida Holm?", answer="Rome", turns=(("Ada Finch?", "Rome"),))
    found = evaluate_questions(run, [asked], environment)
    made = evaluation_report(run, found, environment, source="pairs.jsonl", seconds=1.0)
    data = json.loads(re.search(r'application/json">(.*?)</script>', made.attention)[1])  # type: ignore[index]
    (one,) = data["panels"][0]["maps"]
    row = encode_questions(run.template, [asked], run.recipe.model.context_length)[0]
    read = run.template.open_answer(row)
    assert one["keys"] == [run.tokenizer.decode([i]) for i in read][-LONGEST:]


def test_tokens_within_a_character_are_told_apart() -> None:
    recipe = override(RECIPES["text"], ["model.d_model=16", "model.context_length=128"])
    tokenizer = train_tokenizer(BytePairsConfig(size=300), [QUESTION])
    model = Run.new(Path("runs/tiny"), recipe, tokenizer, {})
    inside = attention_view(model, answer(question="é?"), ExecutionEnvironment.choose("cpu"))
    data = json.loads(re.search(r'application/json">(.*?)</script>', inside)[1])  # type: ignore[index]
    assert "\ufffd" not in data["panels"][0]["maps"][0]["keys"]


def test_a_model_without_attention_has_no_view() -> None:
    recurrent = run("model.kind=rnn")
    assert attention_view(recurrent, answer(), ExecutionEnvironment.choose("cpu")) == ""
    assert "<script" not in replace(report(), attention="").html()


def test_what_a_model_says_is_shown_as_text() -> None:
    page = parsed()
    assert "img" not in page.tags
    assert page.tags.count("script") == 2, "those of the attention view"
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


def test_what_needs_a_look_comes_first_and_terms_are_defined() -> None:
    def scored(name: str, confidence: float) -> Answer:
        return made_answer(QUESTION, answered=name, expected="Rome", confidence=confidence)

    answers = [scored("Rome", 0.9), scored("Oslo", 0.2), scored("Rome", 0.1), scored("Bonn", 0.8)]
    wrong, right = answer_tables(answers, "confidence", {})
    assert [(wrong.title, right.title)] == [("Wrong", "Right")]
    assert [row.confidence for row in wrong.rows] == [0.8, 0.2]
    assert [row.confidence for row in right.rows] == [0.1, 0.9]
    assert (wrong.note, right.note) == (
        "2 answers, the most confident first",
        "2 answers, the least confident first",
    )
    results = {"Verdicts": {"lucky": "1"}, "AUROC, right against wrong": {"confidence": "0.9"}}
    text = parsed(replace(report(), results=results).html()).text
    assert VERDICTS["lucky"] in text
    assert VERDICTS["invented"] not in text
    assert "AUROC is the probability" in text
    assert "AUROC" not in parsed().text


def test_answers_to_open_with_come_first_and_close_the_tables() -> None:
    said = replace(report().tables[0].rows[0], verdict="misremembered")
    page = replace(report(), examples=[said], picture=report().figures[0]).html()
    assert page.count("<svg></svg>") == 2
    assert page.index("misremembered") < page.index("<svg") < page.index("<details")
    assert "<details open" not in page
    assert VERDICTS["misremembered"] in parsed(page).text
    assert '<details class="group" open>' in report().html()


@pytest.mark.parametrize("family", ["perceiver", "encoder-decoder, post"])
def test_latents_and_targets_have_no_view(family: str) -> None:
    shown = answer(question="Ada was born in Rome and lives in Oslo")
    assert attention_view(family_run(family), shown, ExecutionEnvironment.choose("cpu")) == ""
