"""Pages are whole in themselves, and do no more than they should."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_views import tiny_view

from regard.explorer.page import in_notebook, module, page


class Elements(HTMLParser):
    """A document as a browser understands it: its elements, and the text outside of them."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def the(self, tag: str, **attributes: str) -> dict[str, str | None]:
        """The one element of that kind."""
        (found,) = (a for t, a in self.elements if t == tag and attributes.items() <= a.items())
        return found


def written() -> str:
    return page(tiny_view().data)


def test_a_page_names_no_other_place() -> None:
    assert set(re.findall(r"\w+://[^\s\"'<]*", written())) == {"http://www.w3.org/2000/svg"}
    kinds = {"src", "href", "action", "srcset", "data"}
    pointers = [(tag, a[k]) for tag, a in Elements(written()).elements for k in kinds & a.keys()]
    assert pointers == [("link", "data:,")]


def test_a_page_has_no_ids() -> None:
    assert not any("id" in attributes for _, attributes in Elements(written()).elements)
    assert not re.search(r"\bids?\s*[:=]|getElementById|\"id\"", module())


def test_no_text_is_read_as_html() -> None:
    readers = "innerHTML|outerHTML|insertAdjacentHTML|document.write|parseFromString|eval|Function"
    assert not re.search(rf"\b({readers})\b", module())


def test_the_policy_lets_this_script_run_and_nothing_be_fetched() -> None:
    read = Elements(written())
    policy = read.the("meta", **{"http-equiv": "Content-Security-Policy"})["content"] or ""
    rules = {name: rest for name, *rest in (rule.split() for rule in policy.split(";"))}
    script = max(read.texts, key=lambda text: "function render(" in text)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert rules["default-src"] == ["'none'"]
    assert rules["script-src"] == [f"'sha256-{digest}'"]
    assert not {"connect-src", "frame-src", "font-src", "script-src-attr"} & rules.keys()


@settings(max_examples=20)
@given(st.text(), st.integers(100, 2000))
def test_a_notebook_gets_the_same_page_in_a_frame(text: str, height: int) -> None:
    data = {"title": text, "text": text}
    (element,) = Elements(in_notebook(data, height=height)).elements
    tag, attributes = element
    assert tag == "iframe"
    assert attributes["srcdoc"] == page(data)
    assert attributes["title"] == text
    assert attributes["sandbox"] == "allow-scripts", "without the notebook's origin"
    assert f"height: {height}px" in (attributes["style"] or "")


def test_where_frames_are_taken_out_a_text_remains() -> None:
    html = in_notebook({"title": "a > b"})
    assert re.fullmatch(r"Interactive attention view: trust .*\.", re.sub("<[^>]*>", "", html))
