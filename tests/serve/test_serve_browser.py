"""The page in a browser: looked at, clicked through, written with."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from browser import axe, empty_tab, violations
from regard import edits
from regard.explorer import page as pages
from tiny import Command, succeeded
from tiny_explored import tiny_folder
from tiny_served import HOSTILE, TEXT, save_run, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.slow


Scheme = Literal["light", "dark"]
SENTENCE = "Ada Finch was born"
PIXELS = """
(canvas) => [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data]
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("served")
    runs = [save_run(folder / name, name) for name in ("decoder", "encoder-decoder", "encoder")]
    broken = save_run(folder / "broken")
    (broken / "model.safetensors").write_bytes(b"no weights")
    others = [
        f"hf:{tiny_folder(folder / family, family, head=family == 'gpt2')}"
        for family in ("gpt2", "bert")
    ]
    with served(*runs, broken, *others) as port:
        yield port


@contextmanager
def opened(
    browser: "Browser", port: int, *, width: int = 360, scheme: Scheme = "dark"
) -> "Iterator[Page]":
    """The page, which asks only its server and has nothing to complain of."""
    said, asked = list[str](), list[str]()
    with empty_tab(browser, width=width, height=800, scheme=scheme) as page:
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"http://127.0.0.1:{port}/")
        field(page, "Model").locator("option").nth(5).wait_for(state="attached")
        yield page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    refusals = [line for line in said if "422" in line]  # Chromium notes them by itself
    assert said == refusals
    assert all(url.startswith((f"http://127.0.0.1:{port}/", "data:")) for url in asked)


@pytest.fixture
def page(browser: "Browser", port: int) -> "Iterator[Page]":
    with opened(browser, port) as found:
        yield found


def field(page: "Page", name: str) -> "Locator":
    return page.get_by_label(name, exact=True)


def button(page: "Page", name: str) -> "Locator":
    return page.get_by_role("button", name=name, exact=True)


def opacity(page: "Page", name: str) -> list[int]:
    """Of the pixels of a thumbnail: the sizes of its weights."""
    pixels: list[int] = button(page, name).locator("canvas").evaluate(PIXELS)
    return pixels[3::4]


def unfold(page: "Page", name: str) -> None:
    page.locator("summary", has_text=name).click()


def look(page: "Page", text: str = TEXT) -> None:
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Look", exact=True).click()


def test_a_text_is_looked_at_head_by_head(page: "Page") -> None:
    look(page)
    page.get_by_role("button", name="open layer 1, head 0").click()
    page.get_by_label("weights of layer 1, head 0").wait_for()
    page.get_by_role("button", name="Step by step").click()
    page.get_by_role("columnheader", name="weight", exact=True).wait_for()
    page.get_by_label("head", exact=True).select_option("1")
    page.get_by_role("columnheader", name="weight", exact=True).wait_for()
    page.get_by_role("button", name="Heads").click()
    page.get_by_role("button", name="from “t”, position 0").click()
    assert "attends most to" in page.locator(".said").inner_text()


def test_a_text_may_hold_anything(page: "Page") -> None:
    look(page, HOSTILE[:30])
    page.get_by_role("heading", name=HOSTILE[:30]).wait_for()
    assert page.locator("img").count() == 0


def test_what_is_written_is_watched(page: "Page") -> None:
    look(page)
    page.get_by_role("button", name="Heads").click()
    unfold(page, "Options")
    page.get_by_label("max. new tokens").fill("6")
    page.get_by_role("button", name="Generate", exact=True).click()
    page.get_by_text("Token limit reached.").wait_for()
    written = page.locator(".generated .text").text_content() or ""
    assert len(written) == len(TEXT) + 6
    page.get_by_role("button", name=f"position {len(TEXT) + 5}").first.wait_for()
    assert page.locator("svg text[data-lit]").text_content() == written[-1]
    assert not page.get_by_role("button", name="Stop", exact=True).is_visible()
    tokens = page.locator(".generated .text button")
    assert "".join(tokens.all_text_contents()) == written[len(TEXT) :]
    for at in (5, 2):
        tokens.nth(at).hover()
        token = written[len(TEXT) + at]
        assert page.locator(".candidates caption").inner_text() == f"probabilities before “{token}”"
        rows = page.locator(".candidates tr")
        assert rows.count() == 5
        best = rows.first.locator("strong").text_content()
        assert best == f"“{token}”", "greedy decoding takes the most probable"
    tokens.nth(2).focus()
    page.keyboard.press("ArrowDown")
    assert tokens.nth(3).evaluate("(one) => one === document.activeElement")


def test_a_run_that_fails_says_why_and_others_go_on(page: "Page") -> None:
    run = field(page, "Model")
    page.get_by_label("Text", exact=True).fill(TEXT)
    run.select_option("broken")
    page.get_by_role("alert").get_by_text("broken/model.safetensors: is damaged").wait_for()
    run.select_option("encoder-decoder")
    page.get_by_label("attention").first.wait_for()
    assert page.get_by_role("alert").inner_text() == ""
    run.select_option("encoder")
    assert not page.get_by_role("button", name="Generate", exact=True).is_visible()


# Questions


@pytest.fixture
def asking(browser: "Browser", run: Path, regard: Command) -> "Iterator[Page]":
    """The page of a run that was trained on questions, and of others, in a narrow window."""
    succeeded(regard("index", "text.txt", "--out", "run/corpus.index"))
    others = [save_run(run.parent / f"other{i}") for i in range(5)]
    with served(run, *others) as port, opened(browser, port, width=390) as page:
        yield page


def test_a_question_is_answered_with_evidence_and_attention(asking: "Page") -> None:
    asking.evaluate(axe())
    asking.get_by_label("Text", exact=True).fill("Where was Mia Bell born?")
    unfold(asking, "Options")
    asking.get_by_label("expected answer (optional)").fill("Rome")
    asking.keyboard.press("Enter")
    reply = asking.get_by_label("Reply", exact=True)
    reply.get_by_text("recalled: right").wait_for()
    assert reply.locator("strong").inner_text() == "Rome"
    assert reply.locator("li").inner_text() == "text.txt:3 Mia Bell was born in Rome."
    assert reply.locator("li mark").inner_text() == "Rome"
    reply.get_by_text("Signals").press("Enter")
    reply.get_by_role("rowheader", name="log-probability").wait_for()
    assert asking.evaluate("document.documentElement.scrollWidth") <= 390
    asking.locator(".said").get_by_text("attends most to").wait_for()
    assert violations(asking) == []
    as_it_stands = asking.get_by_label("continue the text as it stands")
    asking.get_by_label("Text", exact=True).fill("Mia Bell was born in")
    as_it_stands.check()
    asking.get_by_label("max. new tokens").fill("2")
    button(asking, "Generate").click()
    asking.get_by_text("Token limit reached.").or_(asking.get_by_text("End of text.")).wait_for()
    field(asking, "Model").select_option("other0")
    assert not button(asking, "Ask").is_visible()
    assert not as_it_stands.is_visible()


def test_a_question_may_hold_anything(asking: "Page") -> None:
    asking.get_by_label("Text", exact=True).fill(HOSTILE)
    button(asking, "Ask").press("Enter")
    asking.get_by_label("Reply", exact=True).get_by_text("I don't know.").wait_for()
    assert asking.locator("img").count() == 0


# Models of Hugging Face


def test_hugging_face_models_are_looked_at_and_generate_with_a_head(page: "Page") -> None:
    for family in ("gpt2", "bert"):
        field(page, "Model").select_option(family)
        assert page.locator(".description").inner_text() == f"Hugging Face {family}"
        look(page, SENTENCE)
        page.get_by_role("heading", name=f"{family}: {SENTENCE}").wait_for()
        button(page, "Step by step").click()
        page.get_by_role("columnheader", name="weight", exact=True).wait_for()
        button(page, "Model").click()
        assert button(page, "Generate").is_visible() == (family == "gpt2")
        if family == "gpt2":
            button(page, "Generate").click()
            page.get_by_text("Token limit").or_(page.get_by_text("The context is full")).wait_for()
            assert page.locator(".generated .text").inner_text().startswith(SENTENCE)
    unfold(page, "Options")
    field(page, "Second text (optional)").fill("in Rome")
    look(page, SENTENCE)
    page.get_by_role("heading", name=f"bert: {SENTENCE} / in Rome").wait_for()


# Panel by side


def test_the_same_before_its_training_stands_beside_it(page: "Page") -> None:
    field(page, "Model").select_option("bert")
    look(page, SENTENCE)
    button(page, "open layer 1, head 2").wait_for()
    button(page, "Model").click()
    page.get_by_text("Compare with: nothing").click()
    field(page, "Other model").select_option("the same, untrained")
    sides = [f"open layer 1, head 2{of}" for of in ("", ", bert, untrained", ", difference")]
    button(page, sides[2]).wait_for()
    seen = [opacity(page, side) for side in sides]
    assert seen[0] != seen[1]
    assert page.locator("summary").last.inner_text() == "Compare with: the same, untrained"
    button(page, "Step by step").click()
    weights = []
    for side in ("bert", "bert, untrained"):
        field(page, "of").select_option(side)
        page.get_by_role("columnheader", name="weight", exact=True).wait_for()
        weights.append(page.locator(".view .steps td:nth-child(2)").all_inner_texts())
    assert weights[0] != weights[1], "the exact steps are those of the side"
    field(page, "Other model").select_option("the same")
    page.get_by_role("heading", name=f"bert: {SENTENCE}", exact=True).wait_for()
    button(page, "Model").click()
    assert page.get_by_role("button", name="difference").count() == 0


def test_an_edit_is_shown_beside_the_same_model_without_it(page: "Page") -> None:
    look(page)
    button(page, "Model").click()
    unfold(page, "Edit: none")
    edit = edits.zero("decoder.0.heads.0").to_toml()
    field(page, "Edits of the model, as TOML").fill(edit)
    assert page.locator(".editing summary").inner_text() == "Edit: in use"
    unfold(page, "Compare with: nothing")
    field(page, "Other model").select_option("the same, not edited")
    button(page, "open layer 1, head 0, difference").wait_for()


def test_comments_alone_are_no_edit(page: "Page") -> None:
    page.locator(".editing summary").click()
    page.locator("[name=edit]").fill("# none")
    field(page, "Text").fill("dog")
    button(page, "Look").click()
    page.locator(".view-area canvas").first.wait_for()
    assert not page.locator(".error").text_content()


def test_a_head_is_switched_off_and_on(page: "Page") -> None:
    look(page)
    unfold(page, "Edit: none")
    text, switch = field(page, "Edits of the model, as TOML"), button(page, "decoder.1, head 0")
    switch.click()
    page.get_by_role("heading", name=f"decoder, edited: {TEXT}").wait_for()
    assert text.input_value().strip() == edits.zero("decoder.1.heads.0").to_toml().strip()
    button(page, "decoder.0, head 1").click()
    assert text.input_value().count("[[edit]]") == 2
    assert switch.get_attribute("aria-pressed") == "false"
    switch.click()
    assert switch.get_attribute("aria-pressed") == "true"
    assert text.input_value().strip() == edits.zero("decoder.0.heads.1").to_toml().strip()


def test_another_model_and_another_text_stand_beside_it(page: "Page") -> None:
    look(page)
    button(page, "Model").click()
    unfold(page, "Compare with")
    field(page, "Other model").select_option("encoder")
    page.get_by_role("heading", name=f"decoder: {TEXT} ∣ encoder: {TEXT}").wait_for()
    button(page, "open layer 0, head 0, encoder").wait_for()
    field(page, "Other model").select_option("the same")
    field(page, "Other text (empty: the same)").fill("the god ran")
    field(page, "Word to compare (empty: the first shared word)").fill("d")
    button(page, "Look").click()
    page.get_by_role("heading", name=f"decoder: {TEXT} ∣ decoder: the god ran").wait_for()
    assert page.locator("summary").last.inner_text() == "Compare with: another text"
    button(page, "Word").click()
    assert page.locator(".said").inner_text().startswith("“d” in layer")
    field(page, "Other text (empty: the same)").fill(TEXT)
    assert page.locator("summary").last.inner_text() == "Compare with: nothing"


# Some layers and heads


def test_what_is_too_large_is_made_smaller_on_the_page(
    page: "Page", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LARGEST", len(TEXT) ** 2 * 6)
    look(page)
    page.get_by_role("alert").get_by_text("fill in “Only layers” or “Only heads”").wait_for()
    unfold(page, "Options")
    field(page, "Only layers").fill("1")
    field(page, "Only heads").fill("0-1")
    button(page, "Look").click()
    button(page, "open layer 1, head 1").click()
    assert page.get_by_role("alert").inner_text() == ""
    button(page, "Step by step").click()
    page.get_by_role("columnheader", name="weight", exact=True).wait_for()
    button(page, "Generate").click()
    page.get_by_role("alert").get_by_text("or choose a shorter text").wait_for()


# For everybody


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1200, "dark")])
def test_axe_finds_nothing(browser: "Browser", port: int, scheme: Scheme, width: int) -> None:
    """With all controls unfolded, in any view (https://github.com/dequelabs/axe-core)."""
    with opened(browser, port, width=width, scheme=scheme) as page:
        page.evaluate(axe())
        assert violations(page) == [], "before anything is shown"
        for name in ("Options", "Compare with"):
            unfold(page, name)
        field(page, "Other model").select_option("the same, untrained")
        look(page)
        button(page, "Model").click()
        button(page, "open layer 0, head 0, difference").wait_for()
        for name in page.locator(".regard-look section .bar button").all_inner_texts():
            button(page, name).click()
            if name == "Step by step":
                page.get_by_role("columnheader", name="weight", exact=True).wait_for()
            page.locator(".view").hover()
            assert violations(page) == [], name
        field(page, "Only layers").fill("x")
        button(page, "Look").click()
        page.get_by_role("alert").get_by_text("Only layers").wait_for()
        assert violations(page) == [], "when something is refused"


def test_an_invalid_field_is_unfolded_and_a_hidden_one_is_not_checked(page: "Page") -> None:
    field(page, "Text").fill(TEXT)
    unfold(page, "Options")
    field(page, "temperature").fill("0.25")
    assert page.evaluate("document.querySelector('form').checkValidity()")
    field(page, "temperature").fill("")
    unfold(page, "Options")
    button(page, "Look").click()
    assert field(page, "temperature").is_visible()
    field(page, "Model").select_option(label="encoder")
    assert page.evaluate("document.querySelector('form').checkValidity()")


def test_words_of_right_to_left_text_stand_from_right_to_left(page: "Page") -> None:
    first, second = page.evaluate(
        """() => {
          document.querySelector(".generated").hidden = false;
          const text = document.querySelector(".generated .text");
          text.innerHTML = "<button>שלום</button><button> עולם</button>";
          return [...text.children].map((word) => word.getBoundingClientRect().left);
        }"""
    )
    assert first > second
