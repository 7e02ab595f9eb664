"""Offline pages: the policy that allows their scripts, and data that can't end a script."""

import json
from base64 import b64encode
from hashlib import sha256
from typing import Any


def content_policy(*scripts: str) -> str:
    """Return a Content Security Policy that allows these scripts and no requests (W3C CSP 3)."""
    digests = (b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def inert(data: dict[str, Any]) -> str:
    """Return JSON in which no text can end the script around it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
