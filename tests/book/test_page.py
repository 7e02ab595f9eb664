"""The page, the slides, and a finding in a notebook."""

import dataclasses
import re
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace
from tiny_book import PARTS, tiny_book, tiny_results

from regard.book.contents import Book, Proof, arrange
from regard.book.lessons import all_lessons
from regard.book.page import book_html, finding_html, slides_html, write_book
from regard.cli import main
from regard.courses import Shown
from regard.derivations import DERIVATIONS
from regard.studies.single_head.one_head import averaging


class Page(HTMLParser):
    """Ids, references and open answers of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.opened = 0
        self.folded_text = ""
        self.visible_text = ""
        self._inside = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [str(values["id"])] if "id" in values else []
        self.references += [str(values[k]) for k in ("src", "href", "xlink:href") if k in values]
        if tag == "details":
            self._inside += values.get("class") == "answer"
            self.opened += values.get("class") == "answer" and "open" in values

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._inside = 0

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.folded_text += data
        elif self.lasttag not in ("style", "script"):
            self.visible_text += data


@pytest.mark.parametrize("make", [book_html, slides_html])
def test_a_page_is_whole_and_fetches_nothing(make: Callable[[Book], str]) -> None:
    page = make(tiny_book())
    read = Page(page)
    assert len(set(read.ids)) == len(read.ids)
    for reference in read.references:
        assert reference.startswith(("#", "data:")), reference
        assert not reference.startswith("#") or reference[1:] in read.ids, reference
    (script,) = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    assert f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" in unescape(page)
    assert "default-src 'none'" in unescape(page)


def test_lessons_stand_before_the_courses() -> None:
    """The start page has a card for each; the page holds one model for all views."""
    first, *others = all_lessons()[:5]
    lessons = [replace(first, parts=("jhu-hw5 1.2",)), *others]
    page = book_html(arrange(PARTS, tiny_results(), lessons))
    read = Page(page)
    assert {*(lesson.id for lesson in lessons), "live-model"} <= set(read.ids)
    start = page.split('id="start"')[1].split("</section>")[0]
    assert re.findall(r'<a href="#(lesson-[a-z-]+)"', start) == [one.id for one in lessons]
    assert page.index(f'id="{lessons[-1].id}"') < page.index('id="jhu-hw5"')
    part = page.split('id="jhu-hw5-1.2"')[1].split("</article>")[0]
    assert '<a href="#lesson-one-head">' in part
    assert page.count("function loadModel(") == page.count('data-view="mask"') == 1
    assert "loadModel" not in book_html(tiny_book())


def test_everything_shown_has_an_element() -> None:
    ids = Page(book_html(tiny_book())).ids
    for part in PARTS:
        here = f"{part.course}-{part.number}"
        assert {here, *(f"{here}-{one.id}" for one in part.shown)} <= set(ids)
    assert {"study-averaging", "study-products", "derivation-square"} <= set(ids)


def test_a_figure_is_drawn_once() -> None:
    page = book_html(tiny_book())
    assert page.count('id="figure-averaging-1"') == 1
    assert page.count('href="#figure-averaging-1"') == 1
    assert page.count(averaging().caption.split(".")[0]) >= 4, "visible, and as text alternative"


def test_a_question_stands_before_a_slider() -> None:
    page = book_html(tiny_book())
    before, after = page.split('data-formula="averaging"', 1)
    question = before.rindex('<p class="question">With')
    assert before[question:].count('<details class="option">') == 3
    assert before.rindex("<details") == before.index('<details class="adjustable"', question)
    assert after.index("</fieldset>") < after.index("</details>")


def test_clip_paths_lie_outside_the_pages_that_may_be_hidden() -> None:
    pages, after = book_html(tiny_book()).split("</main>")
    assert "<clipPath" not in pages
    for name in re.findall(r'clip-path="url\(#([^)]*)\)"', pages):
        assert f'<clipPath id="{name}">' in after


def test_answers_are_folded_and_options_stand_before_them() -> None:
    page = Page(book_html(tiny_book()))
    assert page.opened == 0
    assert "The numbers are natural." in page.visible_text
    for option in ("✓ right", "One less is smaller", "✗ wrong"):
        assert option in page.visible_text, "beside the answer, each folded by itself"
    assert "One less is smaller" not in page.folded_text
    for secret in ("always", averaging().study.claim[:20]):
        assert secret not in page.visible_text
        assert secret in page.folded_text
    options = book_html(tiny_book()).split('<ol class="options">')[1].split("</ol>")[0]
    assert options.count('<details class="option"><summary aria-label="') == 2


def test_an_error_of_a_document_stands_at_its_part_and_is_listed() -> None:
    shown = (Shown(id="x", text="x", by="study:fourier-features"),)
    page = book_html(arrange([replace(PARTS[2], shown=shown)], tiny_results()))
    assert page.count("The directions are drawn from N(0, σ²I).") == 1
    errors = page.split('id="errors"')[1]
    assert '<a href="#eecs182-hw8-3.a.ii">3.a.ii</a>' in errors


def test_texts_are_escaped() -> None:
    page = book_html(tiny_book())
    assert "&lt;b&gt;always&lt;/b&gt;" in page
    assert "<b>always" not in page


def test_lines_of_a_derivation_have_reason_and_outcome() -> None:
    page = book_html(tiny_book())
    lines = page.split('id="derivation-square"')[1].split("</section>")[0]
    assert "The square of a sum." in lines
    first, equality, bound, approximation = lines.split("<li")[1:]
    assert 'class="error"' not in first
    assert re.search(r"exact|relative error \de-1\d", equality)
    assert ">bound holds<" in bound
    assert ">difference within its bound<" in approximation


def test_lines_to_choose_stand_before_the_answer() -> None:
    derivation = DERIVATIONS["product-mean"]
    results = dataclasses.replace(
        tiny_results(),
        proofs={**tiny_results().proofs, "product-mean": Proof(derivation, derivation.check(0))},
    )
    part = replace(PARTS[1], derivation="product-mean", shown=PARTS[1].shown[1:])
    page = book_html(arrange([part], results))
    missing, wrong = re.findall(r'<details class="exercise">.*?</ol>', page, re.DOTALL)
    assert missing.count('<details class="option">') == 4
    assert missing.count("✓ right") == wrong.count("✓ this is the wrong line") == 1
    assert "<summary>" not in missing.split("</summary>", 1)[1], "a formula has a name in text"
    assert page.index(wrong) < page.index('<details class="answer">')
    assert "the missing line" not in book_html(arrange(PARTS[:1], tiny_results()))


def test_heads_can_be_looked_at() -> None:
    page = book_html(tiny_book())
    assert page.count('<details class="explorer-view">') == 3
    assert page.count("function render(") == 1, "of the explorer, which all views share"
    assert "Look inside: the query 8(k₁ + k₂) among 10 keys" in page


def test_a_finding_in_a_notebook_has_no_script_of_its_own() -> None:
    html = finding_html(averaging(n=66, t=9.0))
    assert "<math" in html
    assert "<script" not in html
    assert 'type="range"' not in html
    assert "http" not in html.replace("http://www.w3.org/", "")
    assert "The claim holds" in html
    assert "<math" in averaging()._repr_html_()


def screens(page: str) -> dict[str, str]:
    """Each slide of a page by its id."""
    slides = re.split(r'<section class="slide [^"]*" id="', page)[1:]
    return {slide.partition('"')[0]: slide.partition("</section>")[0] for slide in slides}


def test_slides_show_one_figure_each() -> None:
    for slide in screens(slides_html(tiny_book())).values():
        assert slide.count("<figure>") == ('class="claim"' in slide)


def test_slides_begin_with_title_and_overview_and_show_their_position() -> None:
    slides = screens(slides_html(tiny_book()))
    assert list(slides)[:4] == ["title", "overview", "jhu-hw5", "jhu-hw5-1.1"]
    assert "3 questions" in slides["title"]
    assert 'href="#eecs182-hw8"' in slides["overview"]
    assert 'href="#jhu-hw5-1.2"' in slides["jhu-hw5"]
    for number, slide in enumerate(slides.values(), 1):
        assert f"<span>{number} / {len(slides)}</span>" in slide


def test_a_slide_shows_the_options_before_the_answer() -> None:
    problem, answer = screens(slides_html(tiny_book()))["jhu-hw5-1.1"].split('class="answer"')
    assert "<li>Yes</li>" in problem
    assert "always" not in problem
    assert "always" in answer


def test_slides_have_studies_that_no_part_shows() -> None:
    assert "study-fourier-features" in screens(slides_html(tiny_book()))


def test_a_long_answer_takes_several_slides() -> None:
    answer = "\n\n".join(["A word. " * 60] * 3)
    book = arrange([replace(PARTS[1], answer=answer)], tiny_results())
    slides = screens(slides_html(book))
    more = [name for name in slides if "--answer" in name]
    assert more == ["jhu-hw5-1.2--answer-2", "jhu-hw5-1.2--answer-3"]
    for name in ("jhu-hw5-1.2", *more):
        assert slides[name].count("A word.") == 60


def test_a_lesson_is_titled_by_what_it_shows() -> None:
    """Pages of a single question were titled "five courses"."""
    lesson = arrange(PARTS[:1], tiny_results())
    title = f"Attention: {lesson.subject}"
    page, slides = book_html(lesson), slides_html(lesson)
    assert f"<title>{title}</title>" in page
    assert f"<h1>{title}</h1>" in page
    assert "1 question, answered" in page
    assert 'id="errors"' not in page
    assert f"<title>{title} (slides)</title>" in slides
    assert f'<p class="subject">{lesson.subject}</p>' in slides


def test_slides_are_written_on_request(tmp_path: Path) -> None:
    written = write_book(tmp_path, tiny_book(), slides=False)
    assert written == [tmp_path / "index.html"]
    written = write_book(tmp_path, tiny_book(), slides=True)
    assert [page.name for page in written] == ["index.html", "slides.html"]
    assert all(page.stat().st_size > 100_000 for page in written)


@pytest.mark.parametrize("name", ["config.toml", "index.html", "slides.html"])
def test_other_files_are_not_overwritten(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("mine", "utf-8")
    assert main.run(["book", "--out", str(tmp_path), "--only", "masking"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("; choose another --out")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text("utf-8") == "mine"
