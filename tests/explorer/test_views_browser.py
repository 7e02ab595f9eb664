"""Views of sides, words and positions, in a browser: what is said is what was computed."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tiny_views import tiny_view

from regard.config import override
from regard.explorer.attention_maps import Panel, gather_maps
from regard.explorer.intercept import capture_attention, score_steps
from regard.explorer.look import look
from regard.explorer.page import View
from regard.models.pattern import LayerConfig
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.text.config import WordsConfig
from regard.text.tokenizer import train_tokenizer
from tiny_models import tiny_model

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

TEXTS = ("the kids play in the park", "a great play opened in town")
NUMBER = r"(-?\d+\.\d+(?:e-?\d+)?)"


@pytest.fixture
def page(browser: "Browser") -> "Iterator[Page]":
    """A page on which nothing may go wrong."""
    opened, errors = browser.new_page(), list[str]()
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: errors.append(message.text))
    yield opened
    opened.close()
    assert not errors


def run(recipe: str, *more: str) -> Run:
    sizes = ("n_layers=2", "n_heads=2", "d_model=16", "context_length=32")
    settings = [*(f"model.{size}" for size in sizes), *more]
    made = Run.new(
        Path("runs/tiny"),
        override(RECIPES[recipe], settings),
        train_tokenizer(WordsConfig(), TEXTS),
        {},
    )
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for parameter in made.model.parameters():
            parameter.normal_(std=0.5)
    made.model.eval()
    return made


def show(page: "Page", view: View, folder: Path, name: str) -> None:
    page.goto(view.save(folder / "view.html").as_uri())
    page.get_by_role("button", name=name, exact=True).click()


def said(page: "Page") -> str:
    text = page.get_by_role("status").text_content()
    assert text is not None
    return text


def weights(view: View, panel: int) -> Any:
    return view.panels[panel].maps[0].layers[0].record.weights[0, 0]


def test_a_difference_is_told_with_both_values(page: "Page", tmp_path: Path) -> None:
    model = run("text")
    view = look(model, TEXTS[0]).beside(look(model, TEXTS[1]))
    show(page, view.opening("matrix"), tmp_path, "Matrix")
    canvas = page.get_by_label(re.compile("weights of layer 0, head 0.*difference"))
    box = canvas.bounding_box()
    assert box is not None
    n = len(view.panels[0].maps[0].queries)
    i, j = n - 1, 2
    page.mouse.move(
        box["x"] + (j + 0.5) / n * box["width"], box["y"] + (i + 0.5) / n * box["height"]
    )
    one, other = (float(weights(view, panel)[i, j]) for panel in (0, 1))
    numbers = re.findall(rf"{NUMBER} ± {NUMBER}", said(page))
    for expected, (value, off) in zip((one, other, one - other), numbers, strict=True):
        assert abs(float(value) - expected) <= float(off)


def test_sides_of_other_shapes_have_no_difference(page: "Page", tmp_path: Path) -> None:
    model = run("text")
    show(page, look(model, TEXTS[0]).beside(look(model, "the park")), tmp_path, "Heads")
    assert page.get_by_role("figure").count() == 2
    page.get_by_label("beside").select_option("nothing")
    assert page.get_by_role("figure").count() == 0


def test_a_word_is_chosen_and_compared(page: "Page", tmp_path: Path) -> None:
    model = run("text")
    view = look(model, TEXTS[0]).beside(look(model, TEXTS[1])).comparing("play")
    show(page, view, tmp_path, "Word")
    places = [[t.strip() for t in panel.maps[0].queries].index("play") for panel in view.panels]
    for part, name in enumerate(("query", "key", "value")):
        vectors = [
            getattr(panel.maps[0].layers[0].record, name)[0, 0, place]
            for panel, place in zip(view.panels, places, strict=True)
        ]
        one, other = vectors
        cosine = torch.nn.functional.cosine_similarity(one, other, dim=0)
        page.locator(".cosines").nth(part).locator("td").first.hover()
        (shown,) = re.findall(rf"cosine {NUMBER}", said(page))
        assert float(shown) == pytest.approx(float(cosine), abs=1e-4)
    entries = page.get_by_label("entries of")
    assert entries.count() == 9
    described = entries.first.get_attribute("aria-label")
    assert described
    assert len(re.findall(NUMBER, described)) == 8, "numbers that a mouse would show"
    page.mouse.move(0, 0)
    page.locator(".view").focus()
    page.keyboard.press("ArrowDown")
    assert said(page).count("length of the difference") == 3
    page.get_by_role("button", name=re.compile("“in”, position 3")).click()
    assert page.get_by_label("entries of").count() == 0, "vectors of one word are kept"


def test_positions_are_told_as_they_are(page: "Page", tmp_path: Path) -> None:
    view = look(run("text", "model.positions.kind=alibi"), TEXTS[0])
    show(page, view, tmp_path, "Positions")
    canvas = page.get_by_label(re.compile("added to the scores.*head 0"))
    canvas.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        canvas.press(key)
    (found,) = re.findall(rf"{NUMBER} ± {NUMBER}", said(page))
    assert abs(float(found[0]) - -2 / 16) <= float(found[1]), "two away, and the slope 2^-4"


def test_the_steps_are_those_that_were_computed(page: "Page", tmp_path: Path) -> None:
    view = look(run("text", "model.positions.kind=rotary"), TEXTS[0])
    show(page, view.opening("step by step"), tmp_path, "Step by step")
    query = 3
    page.get_by_label("query", exact=True).select_option(str(query))
    titles = page.locator("thead th").all_text_contents()
    assert titles == ["key", "k", "k, rotated", "q ∘ k", "q·k", "÷ √d", "masked", "weight", "v"]
    captured = view.panels[0].maps[0].layers[0].record
    for step, (_, matrix) in enumerate(score_steps(captured, 0, 0)):
        cells = page.locator(f"tbody tr td:nth-child({5 + step})").all_text_contents()
        for shown, expected in zip(cells, matrix[query].tolist(), strict=True):
            found = float(shown.replace("−∞", "-inf"))
            assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_on_a_phone_no_number_of_the_steps_is_cut(page: "Page", tmp_path: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    show(page, look(run("text"), TEXTS[0]), tmp_path, "Step by step")
    titles = page.locator("thead th").all_text_contents()
    assert titles == ["key", "q·k", "÷ √d", "masked", "weight", "k", "q ∘ k", "v"]
    frame = page.locator(".view").bounding_box()
    assert frame is not None
    for cell in page.locator("tbody tr td:nth-child(5)").all():
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= frame["x"] + frame["width"]


def test_a_long_token_does_not_cover_the_steps(page: "Page", tmp_path: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    tokens = ("a", "Kapitän" * 20, "b")
    show(page, tiny_view(tokens).opening("step by step"), tmp_path, "Step by step")
    key, first = page.locator("tbody tr:nth-child(2) > *").all()[:2]
    box, number, frame = (one.bounding_box() for one in (key, first, page.locator(".view")))
    assert box is not None
    assert number is not None
    assert frame is not None
    assert box["x"] + box["width"] <= number["x"], "the key stays in view"
    assert number["x"] + number["width"] <= frame["x"] + frame["width"]


def test_of_two_sentences_the_shares_of_blocks_are_listed(page: "Page", tmp_path: Path) -> None:
    view = look(run("masked", "model.n_token_types=2"), *TEXTS)
    show(page, view.opening("matrix"), tmp_path, "Matrix")
    table = page.get_by_label("shares of weight between the texts")
    second = view.panels[0].maps[0].second
    shares = [float(share) for share in table.locator("td").all_text_contents()]
    assert table.locator("th").all_text_contents() == ["A→A", "A→B", "B→A", "B→B"]
    first = weights(view, 0)[:second]
    assert shares[:2] == pytest.approx(
        [float(first[:, :second].sum(-1).mean()), float(first[:, second:].sum(-1).mean())], abs=6e-4
    )
    assert sum(shares) == pytest.approx(2, abs=2e-3)


def test_heads_stand_in_the_row_of_their_layer(page: "Page", tmp_path: Path) -> None:
    """Also where layers have different numbers of heads."""
    pattern = (LayerConfig(), LayerConfig(n_heads=4), LayerConfig())
    model = tiny_model(n_heads=2, n_layers=3, pattern=pattern, dtype=torch.float32)
    maps = gather_maps(capture_attention(model, torch.tensor([[1, 2, 3]])), ["a", "b", "c"])
    show(page, View("tiny", (Panel("tiny", maps),)), tmp_path, "Model")
    tops = []
    for layer in range(3):
        heads = page.locator(f"[aria-label^='open layer {layer},']").all()
        boxes = [head.bounding_box() for head in heads]
        tops.append({round(box["y"]) for box in boxes if box})
    assert [len(top) for top in tops] == [1, 1, 1]
    assert len(set.union(*tops)) == 3
    assert page.locator("[aria-label^='open layer'][tabindex='0']").count() == 1
    page.get_by_role("button", name="open layer 1, head 3").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(":focus").get_attribute("aria-label") == "open layer 1, head 3", "the last"


def test_arrows_skip_layers_of_fewer_heads(page: "Page", tmp_path: Path) -> None:
    pattern = (LayerConfig(n_heads=4), LayerConfig(), LayerConfig(n_heads=4))
    model = tiny_model(n_heads=2, n_layers=3, pattern=pattern, dtype=torch.float32)
    maps = gather_maps(capture_attention(model, torch.tensor([[1, 2, 3]])), ["a", "b", "c"])
    show(page, View("tiny", (Panel("tiny", maps),)), tmp_path, "Model")
    page.get_by_role("button", name="open layer 0, head 3").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(":focus").get_attribute("aria-label") == "open layer 2, head 3"


def test_panels_have_different_names(page: "Page", tmp_path: Path) -> None:
    model, start = run("text"), "the kids play in the park in the park in"  # 40 characters
    view = look(model, f"{start} town").beside(look(model, f"{start} park"))
    show(page, view, tmp_path, "Heads")
    assert len({*page.locator("figcaption").all_text_contents()}) == 3


def test_a_panel_without_this_attention_is_named(page: "Page", tmp_path: Path) -> None:
    one, other = look(run("text"), TEXTS[0]), look(run("text"), TEXTS[1])
    (panel,) = other.panels
    renamed = replace(panel, name="other", maps=(replace(panel.maps[0], name="encoder"),))
    show(page, one.beside(replace(other, panels=(renamed,))), tmp_path, "Model")
    assert page.get_by_text("other has no attention of this kind: self-attention.").count() == 1


def test_arrows_do_not_change_the_layer_of_positions(page: "Page", tmp_path: Path) -> None:
    view = look(run("text", "model.positions.kind=alibi"), TEXTS[0])
    show(page, view.opening("positions"), tmp_path, "Positions")
    page.locator(".view").focus()
    page.keyboard.press("ArrowDown")
    page.get_by_role("button", name="Matrix", exact=True).click()
    assert page.get_by_role("combobox", name="layer").input_value() == "0"
