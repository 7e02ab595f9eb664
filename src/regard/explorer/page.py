"""Pages that show attention: whole in themselves, offline, and safe to put any text on."""

import json
from html import escape
from importlib.resources import files
from typing import Any

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
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
<main id="look"></main>
<script type="application/json" id="data">{data}</script>
<script type="module">
{module}
const data = JSON.parse(document.getElementById("data").textContent);
render({{ model: {{ get: () => data }}, el: document.getElementById("look") }});
</script>
</body>
</html>
"""


def page(data: dict[str, Any]) -> str:
    """A page that holds all that it shows."""
    return _PAGE.format(
        title=escape(data["title"]), style=style(), module=module(), data=inert(data)
    )


def inert(data: dict[str, Any]) -> str:
    """JSON in which no text can end the script that holds it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def in_notebook(data: dict[str, Any], *, height: int = 640) -> str:
    """The page in a frame of its own, as notebooks show it."""
    document = escape(page(data), quote=True)
    return (
        f'<iframe srcdoc="{document}" title="{escape(data["title"], quote=True)}" '
        f'style="width: 100%; height: {height}px; border: 0"></iframe>'
    )


def module() -> str:
    """The module that draws: render({model, el})."""
    return _static("look.js")


def style() -> str:
    """Its stylesheet."""
    return _static("look.css")


def _static(name: str) -> str:
    return (files("regard.explorer") / "static" / name).read_text(encoding="utf-8")
