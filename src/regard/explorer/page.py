"""Self-contained attention pages: offline, and safe for any text."""

import json
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; min-height: 100vh; }}
{style}
</style>
</head>
<body class="regard-look">
<main></main>
<script type="application/json">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""

_START = """
const data = JSON.parse(document.querySelector("script[type='application/json']").textContent);
render({ model: { get: () => data }, el: document.querySelector("main") });
"""


# The shadow root keeps the styles of the view and of the page apart.
_EMBED = """
const host = document.querySelector(".regard-view");
const data = JSON.parse(host.querySelector("script").textContent);
const el = host.attachShadow({ mode: "open" });
el.append(host.querySelector("style"));
render({ model: { get: () => data }, el });
"""

_UNTRUSTED = "Interactive attention view: trust this notebook to see it."


def page(data: dict[str, Any]) -> str:
    """Return a self-contained page."""
    script = module() + _START
    return _PAGE.format(
        policy=_policy(script),
        title=escape(data["title"]),
        style=style(),
        data=inert(data),
        script=script,
    )


def _policy(script: str) -> str:
    """Content Security Policy that allows this script and no requests (W3C CSP Level 3)."""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def inert(data: dict[str, Any]) -> str:
    """Return JSON in which no text can end the script around it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def in_notebook(data: dict[str, Any], *, height: int = 640) -> str:
    """Return the page in a sandboxed frame, for notebooks.

    Its script can't access the notebook. Untrusted notebooks show the text inside instead.
    """
    document = escape(page(data), quote=True)
    return (
        f'<iframe srcdoc="{document}" title="{escape(data["title"], quote=True)}" '
        f'sandbox="allow-scripts" style="width: 100%; height: {height}px; border: 0">'
        f"{_UNTRUSTED}</iframe>"
    )


def embedded(data: dict[str, Any]) -> str:
    """Return the view as part of another page: as high as its content, at most one a page."""
    return (
        f'<div class="regard-view"><style>{style()}</style>'
        f'<script type="application/json">{inert(data)}</script></div>'
        f'<script type="module">{module()}{_EMBED}</script>'
    )


def embedding_policy() -> str:
    """Return the Content Security Policy of a page that embeds a view and has no other script."""
    return _policy(module() + _EMBED)


def module() -> str:
    """Return the JavaScript module that exports render({model, el})."""
    return _static("look.js")


def style() -> str:
    """Return the stylesheet of views."""
    return _static("look.css")


def _static(name: str) -> str:
    return (files("regard.explorer") / "static" / name).read_text(encoding="utf-8")
