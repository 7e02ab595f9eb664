"""Pages of attention as a reader has them: in a browser, by mouse and by keyboard."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
import torch
from tiny_views import TOKENS, tiny_view

from browser import axe, violations, watched
from regard.attention import Softmax
from regard.explorer.from_tensors import look_at_attention
from regard.explorer.page import View

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.slow

HOSTILE = "</script><img src=x onerror=alert(1)>"
LONG = "A title that is " + "very " * 20 + "l" + "o" * 80 + "ng"
LINES = "g:not([display=none]) > line"
NEAR_ITS_END = """
(line) => {
  const part = (of) => 0.05 * line.getAttribute(`${of}1`) + 0.95 * line.getAttribute(`${of}2`);
  const place = new DOMPoint(part("x"), part("y")).matrixTransform(line.getScreenCTM());
  return [place.x, place.y];
}
"""
"""Where on the screen a line is apart from others that begin where it does."""
PIXELS = """
(canvas) => {
  const context = canvas.getContext("2d");
  return [...context.getImageData(0, 0, canvas.width, canvas.height).data];
}
"""
"""Red, green, blue and opacity of each."""
Scheme = Literal["light", "dark"]


@pytest.fixture
def tab(browser: "Browser", tmp_path: Path) -> "Iterator[Page]":
    """A page with a small model's attention, which opens on all heads."""
    with watched(browser, tiny_view().opening("model").save(tmp_path / "look.html")) as page:
        yield page


def button(page: "Page | Locator", name: str) -> "Locator":
    return page.get_by_role("button", name=name, exact=True)


def said(page: "Page | Locator") -> str:
    return page.get_by_role("status").inner_text()


def cells(page: "Page | Locator") -> "Locator":
    return page.get_by_role("application")


def focused(page: "Page") -> str:
    """What a screen reader calls the element that has the focus."""
    name = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
    found: str = page.evaluate(name)
    return found


def point(page: "Page", row: int, column: int, n: int = len(TOKENS)) -> None:
    """Move the mouse over a cell of the matrix."""
    box = cells(page).bounding_box()
    assert box is not None
    x, y = ((place + 0.5) / n for place in (column, row))
    page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])


def weight_told(text: str) -> tuple[float, float]:
    """The weight in what is said, and how far off it may be."""
    found = re.search(r": (-?[\d.]+) ± ([\d.]+)", text)
    assert found is not None, text
    return float(found[1]), float(found[2])


def weights_of(view: View, layer: int, head: int) -> torch.Tensor:
    return view.panels[0].maps[0].layers[layer].record.weights[0, head].double()


def ways(page: "Page") -> list[str]:
    """The names of the views that are offered."""
    return page.locator(".bar").first.get_by_role("button").all_inner_texts()


# What is shown


def test_the_matrix_tells_the_weights_of_the_tensor(tab: "Page") -> None:
    weights = weights_of(tiny_view(), 1, 2)
    button(tab, "open layer 1, head 2").click()
    for i, query in enumerate(TOKENS):
        for j, key in enumerate(TOKENS):
            point(tab, i, j)
            assert said(tab).startswith(f"“{query}” ({i}) attends to “{key}” ({j}): ")
            weight, off = weight_told(said(tab))
            assert abs(weight - weights[i, j]) <= off
            assert off < 0.5 / 255 + 1.5e-4, "half a step of a byte, rounded up"


def test_lines_tell_the_weights_of_the_tensor(tab: "Page") -> None:
    weights = weights_of(tiny_view(), 0, 1)
    button(tab, "Heads").click()
    for head in ("head 0", "head 2", "head 3"):
        button(tab, head).click()
    at = len(TOKENS) - 1
    button(tab, f"from “{TOKENS[at]}”, position {at}").click()
    lines = tab.locator(LINES)
    assert lines.count() == (weights[at] >= 0.02).sum()
    told: dict[int, tuple[float, float]] = {}
    for line in lines.all():
        x, y = line.evaluate(NEAR_ITS_END)
        tab.mouse.move(x, y)
        found = re.match(r"“.*” \((\d+)\) attends to “.*” \((\d+)\): .*, head 1$", said(tab))
        assert found is not None
        assert int(found[1]) == at
        told[int(found[2])] = weight_told(said(tab))
    assert set(told) == set((weights[at] >= 0.02).nonzero().flatten().tolist())
    for j, (weight, off) in told.items():
        assert abs(weight - weights[at, j]) <= off


def test_thumbnails_are_the_heads(tab: "Page") -> None:
    """Pixel by pixel: the opacity is the weight, in 255 steps, half of one off and rounded."""
    tab.get_by_label("contrast").select_option("linear")
    for layer, head in ((0, 0), (1, 3)):
        thumbnail = button(tab, f"open layer {layer}, head {head}").locator("canvas")
        pixels = thumbnail.evaluate(PIXELS)
        opacity = torch.tensor(pixels, dtype=torch.float64).reshape(-1, 4)[:, 3]
        drawn = opacity.reshape(len(TOKENS), -1) / 255
        assert (drawn - weights_of(tiny_view(), layer, head)).abs().max() <= 1 / 255


def test_a_page_opens_on_a_matrix_with_all_heads_in_the_width_beside_it(
    browser: "Browser", tmp_path: Path
) -> None:
    view = tiny_view()
    _, (_, layer, head) = view.opened
    for width in (1200, 390):
        with watched(browser, view.save(tmp_path / "look.html"), width=width) as page:
            label = f"weights of layer {layer}, head {head}; rows are queries"
            assert cells(page).get_attribute("aria-label") == label
            assert page.locator(".queries .token").all_inner_texts() == [*TOKENS]
            chosen = page.locator("[aria-current=true]")
            assert chosen.get_attribute("aria-label") == f"open layer {layer}, head {head}"
            matrix, first = (
                one.bounding_box() for one in (cells(page), button(page, "open layer 0, head 0"))
            )
            assert matrix is not None
            assert first is not None
            beside = first["x"] > matrix["x"] + matrix["width"]
            assert beside == (width == 1200)
            assert not beside or 4 * first["width"] > width / 3, "they use the width"
            button(page, "open layer 0, head 3").click()
            assert cells(page).get_attribute("aria-label") == label.replace(
                f"layer {layer}, head {head}", "layer 0, head 3"
            )
            assert focused(page) == "open layer 0, head 3"


# Mouse and keyboard


def test_hovering_over_a_word_shows_its_lines_and_a_click_locks_them(tab: "Page") -> None:
    button(tab, "Heads").click()
    all_lines = tab.locator(LINES).count()
    word = button(tab, f"to “{TOKENS[2]}”, position 2")
    word.hover()
    assert said(tab).startswith(f"“{TOKENS[2]}” gets most attention from ")
    its_lines = tab.locator(LINES).count()
    assert 0 < its_lines < all_lines
    tab.mouse.move(5, 5)
    assert tab.locator(LINES).count() == all_lines
    word.click()
    assert word.get_attribute("aria-pressed") == "true"
    button(tab, f"from “{TOKENS[0]}”, position 0").hover()
    assert tab.locator(LINES).count() == its_lines, "locked"
    word.click()
    assert word.get_attribute("aria-pressed") == "false"


def test_a_click_locks_a_cell_until_the_next(tab: "Page") -> None:
    button(tab, "open layer 0, head 0").click()
    point(tab, 3, 1)
    tab.mouse.down()
    tab.mouse.up()
    assert said(tab).endswith(", locked")
    locked = said(tab)
    point(tab, 5, 0)
    assert said(tab) == locked
    tab.mouse.down()
    tab.mouse.up()
    point(tab, 6, 2)
    assert said(tab).startswith(f"“{TOKENS[6]}” (6) attends to “{TOKENS[2]}” (2)")


def test_all_is_reached_by_the_keyboard_in_the_order_in_which_it_stands(tab: "Page") -> None:
    names = ways(tab)
    order = []
    for _ in range(len(names) + 3):
        tab.keyboard.press("Tab")
        order.append(focused(tab))
    assert order == [*names, "contrast", "attention", "open layer 0, head 0"]
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement === document.body"), "one stop for all thumbnails"


def test_arrows_go_from_head_to_head_and_enter_opens_one(tab: "Page") -> None:
    weights = weights_of(tiny_view(), 1, 2)
    button(tab, "open layer 0, head 0").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        tab.keyboard.press(key)
    assert focused(tab) == "open layer 1, head 2"
    assert said(tab) == "layer 1, head 2"
    tab.keyboard.press("Enter")
    assert focused(tab).startswith("weights of layer 1, head 2")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        tab.keyboard.press(key)
    assert said(tab).startswith(f"“{TOKENS[2]}” (2) attends to “{TOKENS[1]}” (1): ")
    weight, off = weight_told(said(tab))
    assert abs(weight - weights[2, 1]) <= off
    tab.keyboard.press("Space")
    assert said(tab).endswith(", locked")
    tab.keyboard.press("Escape")
    tab.keyboard.press("Escape")
    assert focused(tab) == "open layer 1, head 2", "back where it was"


def test_words_are_locked_by_the_keyboard(tab: "Page") -> None:
    button(tab, "Heads").click()
    first = button(tab, f"from “{TOKENS[0]}”, position 0")
    first.focus()
    tab.keyboard.press("ArrowDown")
    assert focused(tab) == f"from “{TOKENS[1]}”, position 1"
    tab.keyboard.press("Space")
    second = button(tab, f"from “{TOKENS[1]}”, position 1")
    assert second.get_attribute("aria-pressed") == "true"
    tab.keyboard.press("Tab")
    assert focused(tab) == f"to “{TOKENS[0]}”, position 0", "each side is one stop"
    tab.keyboard.press("Escape")
    assert second.get_attribute("aria-pressed") == "false"


def test_what_is_drawn_anew_keeps_the_focus(tab: "Page") -> None:
    for name in ways(tab):
        button(tab, name).focus()
        tab.keyboard.press("Enter")
        assert focused(tab) == name
        assert button(tab, name).get_attribute("aria-pressed") == "true"
    button(tab, "Matrix").click()
    layer = tab.get_by_role("combobox", name="layer")
    layer.focus()
    tab.keyboard.press("ArrowDown")
    assert cells(tab).get_attribute("aria-label") == "weights of layer 1, head 0; rows are queries"
    assert focused(tab) == "layer"


def test_a_screen_reader_hears_keys_and_no_mouse(tab: "Page") -> None:
    button(tab, "open layer 0, head 0").click()
    point(tab, 1, 1)
    status = tab.get_by_role("status")
    assert status.get_attribute("aria-live") == "off"
    tab.keyboard.press("ArrowDown")
    assert status.get_attribute("aria-live") == "polite"


# Whatever the page and the text


def test_several_views_on_a_page_know_nothing_of_one_another(
    browser: "Browser", tmp_path: Path
) -> None:
    """In a page of one's own: of different models, and twice the same."""
    one = tiny_view(title="one")
    two = tiny_view(title="two", seed=1).opening("step by step", layer=1, head=3)
    place = tmp_path / "several.html"
    place.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>several</title><p>Mine.</p>'
        + "".join(view.embed() for view in (one, two, one)),
        encoding="utf-8",
    )
    with watched(browser, place) as page:
        first, second, again = page.get_by_role("region").all()
        assert page.get_by_role("heading", level=2).all_inner_texts() == ["one", "two", "one"]
        button(first, "Heads").click()
        button(first, f"from “{TOKENS[3]}”, position 3").click()
        assert said(first)
        assert said(second) == said(again) == ""
        second.get_by_role("columnheader", name="weight", exact=True).wait_for()
        button(second, "Matrix").click()
        assert button(first, "Heads").get_attribute("aria-pressed") == "true"
        assert button(again, "Matrix").get_attribute("aria-pressed") == "true"
        cells(second).hover()
        weight, off = weight_told(said(second))
        i, j = map(int, re.findall(r"\((\d+)\)", said(second)))
        assert abs(weight - weights_of(two, 1, 3)[i, j]) <= off
        for name in ("open layer 0, head 0", "open layer 1, head 3"):
            pixels = button(again, name).locator("canvas").evaluate(PIXELS)
            assert any(pixels), "drawn though another one shows the same"


def test_sides_may_be_of_different_sizes(browser: "Browser", tmp_path: Path) -> None:
    view = tiny_view().beside(tiny_view(TOKENS[:3], title="short", layers=1))
    with watched(browser, view.save(tmp_path / "look.html")) as page:
        for name in ways(page):
            button(page, "open layer 1, head 3").click()
            button(page, name).click()
            if name == "Heads":
                button(page, f"to “{TOKENS[-1]}”, position {len(TOKENS) - 1}").click()
            page.get_by_role("combobox", name="of", exact=True).select_option("short")
            assert "undefined" not in page.locator(".regard-look").last.inner_text()
            page.get_by_role("combobox", name="of", exact=True).select_option("tiny")
            button(page, "Model").click()


def test_a_hostile_token_is_a_text(browser: "Browser", tmp_path: Path) -> None:
    tokens = ("a", HOSTILE, "<b>", "&amp;", '"', "\u2028", "}", "\\u003c/script>")
    view = tiny_view(tokens, title=f"</title>{HOSTILE}")
    with watched(browser, view.save(tmp_path / "look.html")) as page:
        assert page.title() == f"</title>{HOSTILE}"
        for name in ways(page):
            button(page, name).click()
            if name != "Model":
                assert page.get_by_text(HOSTILE).count() >= 2, "in the heading and in the view"
            assert page.locator("img, b").count() == 0
        button(page, "Matrix").click()
        point(page, 1, 7)
        assert f"“{HOSTILE}” (1) attends to “\\u003c/script>” (7)" in said(page)


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1200, "dark")])
def test_the_page_never_scrolls_sideways(
    browser: "Browser", tmp_path: Path, width: int, scheme: Scheme
) -> None:
    tokens = [f"{token}{'o' * 12}" for token in TOKENS * 5]
    view = tiny_view(tokens, title=LONG).beside(tiny_view(tokens[:9], title=LONG, seed=1))
    with watched(browser, view.save(tmp_path / "look.html"), width=width, scheme=scheme) as page:
        for name in ways(page):
            button(page, name).click()
            page.locator(".view").hover()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: "Browser", tmp_path: Path, scheme: Scheme) -> None:
    """In any view (https://github.com/dequelabs/axe-core)."""
    view = tiny_view().beside(tiny_view(title="other", seed=1))
    with watched(browser, view.save(tmp_path / "look.html"), scheme=scheme) as page:
        page.evaluate(axe())
        for name in ways(page):
            button(page, name).click()
            page.locator(".view").hover()
            # A view may be a part of a page, which has a heading of its own.
            assert violations(page, without=["page-has-heading-one"]) == [], name


def test_wide_letters_are_not_cut(browser: "Browser", tmp_path: Path) -> None:
    view = tiny_view(("COMMAND", "WWWWWW", "a", "it"))
    with watched(browser, view.save(tmp_path / "look.html")) as page:
        sides = "(of) => of.map((one) => [one.scrollWidth, one.clientWidth])"
        for needed, given in page.locator(".queries .token").evaluate_all(sides):
            assert needed <= given
        button(page, "Heads").click()
        for name in ("COMMAND", "WWWWWW"):
            place = button(page, f"from “{name}”, position {int(name != 'COMMAND')}")
            place.hover()  # in bold
            frame, box = page.locator("svg[role=group]").bounding_box(), place.bounding_box()
            assert frame is not None
            assert box is not None
            assert frame["x"] <= box["x"]


def test_a_number_stays_behind_a_token_from_right_to_left(
    browser: "Browser", tmp_path: Path
) -> None:
    view = tiny_view(("שלום", "עולם", "a"))
    with watched(browser, view.save(tmp_path / "look.html")) as page:
        cells(page).focus()
        text = page.get_by_role("status").evaluate_handle("(one) => one.firstChild")
        left = """(text, part) => {
          const range = new Range(), start = text.data.indexOf(part);
          range.setStart(text, start);
          range.setEnd(text, start + part.length);
          return range.getBoundingClientRect().left;
        }"""
        word, number = (text.evaluate(left, part) for part in ("שלום", "(0)"))
        assert word < number


def test_many_tokens_are_drawn_within_bounds(browser: "Browser", tmp_path: Path) -> None:
    """512 tokens: only the strongest lines, and it is said; each word still has its own."""
    view = tiny_view([f"t{i}" for i in range(512)], layers=1)
    with watched(browser, view.save(tmp_path / "look.html")) as page:
        button(page, "Heads").click()
        assert page.locator(LINES).count() == 4000
        assert "The strongest 4000 of" in page.locator(".view").inner_text()
        button(page, "from “t511”, position 511").hover()
        weights = view.panels[0].maps[0].layers[0].record.weights[0, :, 511]
        # Bytes round: a weight within half a step of the bound may be on either side of it.
        least, most = ((weights >= 0.02 + by).sum() for by in (0.002, -0.002))
        assert least <= page.locator(LINES).count() <= most
        button(page, "Matrix").click()
        point(page, 100, 99, 512)
        assert said(page).startswith("“t100” (100) attends to “t99” (99): ")


def test_the_cell_that_arrows_reach_is_in_view(browser: "Browser", tmp_path: Path) -> None:
    view = tiny_view([f"t{i}" for i in range(40)], layers=1, heads=1)
    with watched(browser, view.save(tmp_path / "look.html")) as page:
        page.set_viewport_size({"width": 1000, "height": 300})
        cells(page).focus()
        for _ in range(39):
            page.keyboard.press("ArrowDown")
        mark, frame = (page.locator(one).bounding_box() for one in (".mark", ".view"))
        assert mark
        assert frame
        assert mark["y"] + mark["height"] <= frame["y"] + frame["height"] + 1


def test_thumbnails_of_one_query_can_be_clicked(browser: "Browser", tmp_path: Path) -> None:
    query, keys = torch.ones(1, 8, 1, 4), torch.ones(1, 8, 300, 4)
    view = look_at_attention(Softmax(), query, keys, keys, title="one query").opening("model")
    with watched(browser, view.save(tmp_path / "look.html")) as page:
        box = button(page, "open layer 0, head 0").bounding_box()
        assert box
        assert box["height"] >= 24


@pytest.fixture
def unequal(browser: "Browser", tmp_path: Path) -> "Iterator[Page]":
    """Two panels of other numbers of tokens, layers and heads."""
    view = tiny_view(heads=4, layers=1).beside(tiny_view(TOKENS[:3], title="short", heads=2))
    with watched(browser, view.save(tmp_path / "look.html")) as page:
        yield page


def test_a_mean_is_over_the_heads_of_its_own_panel(unequal: "Page") -> None:
    button(unequal, "Heads").click()
    unequal.locator("svg").nth(1).locator("text").first.hover()
    assert said(unequal).endswith("(mean of 2 heads)")


def test_a_head_of_the_panel_beside_opens_there(unequal: "Page") -> None:
    button(unequal, "Model").click()
    button(unequal, "open layer 1, head 1, short").click()
    for name, chosen in (("of", "short"), ("layer", "1"), ("head", "1")):
        options = unequal.get_by_role("combobox", name=name, exact=True)
        assert options.locator("option:checked").inner_text() == chosen


def test_a_locked_cell_stays_beside_a_smaller_panel(unequal: "Page") -> None:
    button(unequal, "Matrix").click()
    last = len(TOKENS) - 1
    box = cells(unequal).first.bounding_box()
    assert box is not None
    unequal.mouse.click(box["x"] + box["width"] - 2, box["y"] + box["height"] - 2)
    for head in ("1", "2"):
        unequal.get_by_role("combobox", name="head", exact=True).select_option(label=head)
    assert re.search(rf"\({last}\) attends to .*, locked$", said(unequal))
