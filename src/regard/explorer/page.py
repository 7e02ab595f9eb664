"""Pages that show attention: whole in themselves, offline, and safe to put any text on."""

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


_UNTRUSTED = "An interactive view of attention stands here: trust this notebook to see it."


def page(data: dict[str, Any]) -> str:
    """A page that holds all that it shows."""
    script = module() + _START
    return _PAGE.format(
        policy=_policy(script),
        title=escape(data["title"]),
        style=style(),
        data=inert(data),
        script=script,
    )


def _policy(script: str) -> str:
    """What a page may do: run this script, and fetch nothing.

    https://www.w3.org/TR/CSP3/
    """
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def inert(data: dict[str, Any]) -> str:
    """JSON in which no text can end the script that holds it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def in_notebook(data: dict[str, Any], *, height: int = 640) -> str:
    """The page in a frame of its own, as notebooks show it.

    Its script sees nothing of the notebook. Where frames are taken out, as they are of notebooks
    that aren't trusted, the text within remains.
    """
    document = escape(page(data), quote=True)
    return (
        f'<iframe srcdoc="{document}" title="{escape(data["title"], quote=True)}" '
        f'sandbox="allow-scripts" style="width: 100%; height: {height}px; border: 0">'
        f"{_UNTRUSTED}</iframe>"
    )


def module() -> str:
    """The module that draws: render({model, el})."""
    return _static("look.js")


def style() -> str:
    """Its stylesheet."""
    return _static("look.css")


def _static(name: str) -> str:
    return (files("regard.explorer") / "static" / name).read_text(encoding="utf-8")
