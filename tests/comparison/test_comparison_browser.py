"""The page of a comparison in a browser, by mouse and by keyboard."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from msgspec import structs

from browser import axe, violations, watched
from regard.comparison.page import save_page
from regard.comparison.table import Comparison
from tiny_comparisons import COSTS, DIVERGED, finished, made_up, with_metrics

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

Scheme = Literal["light", "dark"]
SCORES = {"softmax": 0.9, "elu": 0.5, "a-mechanism-with-a-very-long-name-" * 3: 0.7}


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    outcomes = {
        (kind, lr, seed): finished(score - abs(lr - 1e-3) + seed / 100, score)
        for kind, score in SCORES.items()
        for lr in (1e-4, 1e-3, 1e-2)
        for seed in range(3)
    }
    found = made_up(outcomes | {("diverging", 1e-3, 0): DIVERGED}, out=tmp_path)
    with_metrics(found, steps=50)
    return found


@pytest.fixture
def tab(browser: "Browser", comparison: Comparison) -> "Iterator[Page]":
    with watched(browser, save_page(comparison)) as page:
        yield page


def names(page: "Page") -> list[str]:
    return page.locator("tbody td:nth-child(2)").all_inner_texts()


def test_a_column_sorts_by_mouse_and_keyboard_and_again_turns_round(tab: "Page") -> None:
    long = next(name for name in SCORES if name.startswith("a-"))
    tab.get_by_role("button", name="accuracy").click()
    assert names(tab) == ["elu", long, "softmax", "diverging"]
    assert tab.locator("th[aria-sort=ascending]").inner_text().startswith("accuracy")
    tab.get_by_role("button", name="accuracy").click()
    assert names(tab) == ["softmax", long, "elu", "diverging"]  # what is missing stays last
    tab.get_by_role("button", name="attention").focus()
    tab.keyboard.press("Enter")
    assert names(tab) == sorted(names(tab))


def test_the_filter_applies_to_the_charts(tab: "Page") -> None:
    tab.get_by_label("Filter rows").fill("soft")
    assert names(tab) == ["softmax"]
    assert tab.get_by_role("status").inner_text() == "1 of 4 rows"
    assert tab.locator("figure").first.locator("svg path").count() == 1
    tab.get_by_label("Filter rows").fill("nothing like it")
    assert names(tab) == []
    assert tab.locator("figure").count() == 0


def test_hovering_a_point_says_what_it_is(tab: "Page") -> None:
    tuning = tab.locator("figure").first
    tuning.locator("circle").nth(1).hover()
    assert "softmax, lr 0.001: 0.91, in the window, chosen" in tuning.inner_text()


def test_arrow_keys_move_through_the_points(tab: "Page") -> None:
    tuning = tab.locator("figure").first
    tuning.get_by_role("group").focus()
    for expected in ("lr 0.0001", "lr 0.001", "lr 0.01"):
        tab.keyboard.press("ArrowRight")
        assert f"softmax, {expected}:" in tuning.locator(".said").inner_text()
    tab.keyboard.press("ArrowLeft")
    assert "softmax, lr 0.001:" in tuning.locator(".said").inner_text()


def test_another_cost_is_drawn(tab: "Page") -> None:
    tab.get_by_label("Cost").select_option("state_bytes")
    assert tab.get_by_label("Cost").input_value() == "state_bytes"
    assert "no row is better and cheaper" in hovered(tab)


def hovered(tab: "Page") -> str:
    cost = tab.locator("figure").nth(1)
    cost.get_by_role("group").focus()
    tab.keyboard.press("ArrowRight")
    return cost.locator(".said").inner_text()


def test_ticks_are_round_numbers(tab: "Page") -> None:
    for scale, expected in {
        "linear(0.15, 0.98, 0, 1)": [0.2, 0.4, 0.6, 0.8],
        "linear(20, 600, 0, 1)": [200, 400, 600],
        "linear(0.5, 0.5, 0, 1)": [0, 0.2, 0.4, 0.6, 0.8, 1],
        "logarithmic(0.25, 5.3, 0, 1)": [0.5, 1, 2, 5],
        "logarithmic(300, 2e6, 0, 1)": [1e3, 1e4, 1e5, 1e6],
        "logarithmic(64, 91, 0, 1)": [70, 80, 90],
    }.items():
        assert tab.evaluate(f"{scale}.ticks") == pytest.approx(expected), scale


def test_ticks_differ_in_their_texts(tab: "Page") -> None:
    """Costs that were nearly equal had the ticks 1, 1, 1."""
    for ticks, texts in {
        (0.9995, 1, 1.0005): ["0.9995", "1", "1.0005"],
        (123200, 123400): ["1.232e+5", "1.234e+5"],
        (20, 40): ["20", "40"],
    }.items():
        assert tab.evaluate(f"tickTexts({list(ticks)})") == texts


def test_the_table_fits_a_window_of_1280_pixels(browser: "Browser", tmp_path: Path) -> None:
    cost = {"operations": 123_456_789, "state_bytes": 1_234_567, "tokens_per_second": 12_345.0}
    costs = structs.replace(COSTS, parameters=1_234_567, peak_memory_mb=1234.0, **cost)
    outcomes = {
        (kind, lr, seed): structs.replace(finished(0.5, score + seed / 100), costs=costs)
        for kind, score in (("favor-trigonometric", 0.5), ("gated-deltanet-2", 0.6))
        for lr in (1e-4, 1e-3, 1e-2)
        for seed in range(5)
    }
    made = made_up(outcomes, out=tmp_path)
    with_metrics(made, steps=5)
    with watched(browser, save_page(made), width=1280) as page:
        hidden = (
            "[...document.querySelectorAll('.scroll')].map((x) => x.scrollWidth - x.clientWidth)"
        )
        assert page.evaluate(hidden) == [0]


def test_long_numbers_beside_an_axis_are_shown_whole(browser: "Browser", tmp_path: Path) -> None:
    outcomes = {("softmax", lr, 0): finished(0.0088 + lr / 10, 0.5) for lr in (1e-4, 1e-3, 1e-2)}
    with watched(browser, save_page(made_up(outcomes, out=tmp_path)), width=390) as page:
        cut = page.evaluate(
            """() => [...document.querySelectorAll("figure svg text")].filter((text) => {
              const svg = text.ownerSVGElement;
              const clips = getComputedStyle(svg).overflow !== "visible";
              const box = (clips ? svg : text.closest("figure")).getBoundingClientRect();
              const { left, right } = text.getBoundingClientRect();
              return left < box.left || right > box.right;
            }).map((text) => text.textContent)"""
        )
        assert cut == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1200, "dark")])
def test_the_page_fits_and_axe_finds_nothing(
    browser: "Browser", comparison: Comparison, width: int, scheme: Scheme
) -> None:
    with watched(browser, save_page(comparison), width=width, scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate(axe())
        assert violations(page) == []
