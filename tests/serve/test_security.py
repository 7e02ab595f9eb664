"""Who is answered, and how: only this machine's browser, only for the server's own page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from regard.serve.security import HEADERS, SameOriginMiddleware, allowed_hosts, rejection

OWN = "127.0.0.1:8765"
ports = st.integers(1, 65_535)


def why(method: str = "POST", path: str = "/look", **headers: str) -> str | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return rejection(method, path, Headers({"host": OWN, **named}), allowed_hosts(8765))


@given(port=ports, other=ports, name=st.text(st.characters(codec="ascii"), max_size=30))
def test_only_names_of_this_machine_at_its_own_port_are_answered(
    port: int, other: int, name: str
) -> None:
    allowed = allowed_hosts(port)
    for own in ("127.0.0.1", "localhost", "[::1]"):
        assert f"{own}:{port}" in allowed
        assert (f"{own}:{other}" in allowed) == (port == other)
        assert (own in allowed) == (port == 80)
    if name not in ("127.0.0.1", "localhost", "[::1]"):
        assert f"{name}:{port}" not in allowed


FOREIGN_HOSTS = (
    *("", "evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1:80", "localhost"),
    *("127.0.0.1.evil.example:8765", "127.0.0.1:8765.evil.example", "0.0.0.0:8765"),
    *("localhost:8765@evil.example", "[::1]", "127.0.0.2:8765", "localhost.:8765"),
)
FOREIGN_PAGES: tuple[dict[str, str], ...] = (
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "https://127.0.0.1:8765"},
    {"origin": "http://localhost:8765"},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
    {"origin": f"http://{OWN}", "sec_fetch_site": "cross-site"},
)


def test_foreign_hosts_and_pages_are_refused() -> None:
    for host in FOREIGN_HOSTS:
        for method, path in (("GET", "/"), ("GET", "/look.js"), ("POST", "/look")):
            assert why(method, path, host=host), host
    for headers in FOREIGN_PAGES:
        assert why(**headers), headers
        assert why("GET", "/models", **headers), headers
    two_hosts = Headers(raw=[(b"host", OWN.encode()), (b"host", b"evil.example")])
    for none_or_two in (two_hosts, Headers({})):
        assert rejection("GET", "/", none_or_two, allowed_hosts(8765))


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LocalHost:8765"])
def test_its_own_page_is_answered(host: str) -> None:
    asked = {"host": host, "origin": f"http://{host}", "sec_fetch_site": "same-origin"}
    assert why(**asked) is None
    assert why(host=host) is None, "a program that is no browser sends neither"
    assert why("GET", "/", host=host, sec_fetch_site="none", sec_fetch_mode="navigate") is None


def test_a_link_from_elsewhere_opens_the_page_and_nothing_else() -> None:
    linked = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert why("GET", "/", **linked) is None
    assert why("POST", "/", **linked)
    assert why("GET", "/", sec_fetch_site="cross-site", sec_fetch_mode="no-cors")


@pytest.mark.parametrize("host", ["127.0.0.1:80", "evil.example"])
def test_every_answer_carries_the_headers(host: str) -> None:
    guarded = SameOriginMiddleware(PlainTextResponse("in"), 80)
    answer = TestClient(guarded, base_url=f"http://{host}").get("/")
    assert answer.status_code == (200 if host.startswith("127") else 403)
    assert (answer.text == "in") == (answer.status_code == 200)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value


def test_the_policy_lets_no_script_of_others_in() -> None:
    policy = dict(rule.split(" ", 1) for rule in HEADERS["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
