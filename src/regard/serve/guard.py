"""What keeps strangers out: only this machine's own browser, and only this page, is answered.

A page from elsewhere can make a browser send requests to 127.0.0.1, by forms and scripts, or by a
name of its own that comes to stand for 127.0.0.1 (DNS rebinding). The first carry the mark of their
origin, the second a foreign Host.
"""

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAMES = ("127.0.0.1", "localhost", "[::1]")
POLICY = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "connect-src 'self'", "img-src 'self' data:"),
        *("style-src 'self'", "style-src-attr 'unsafe-inline'"),  # look.js places what it draws
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """An application that answers only what its own page asks."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app, self._hosts = app, hosts(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] != "http":  # no sockets here, and nothing to start or end
            return
        why = refusal(scope["method"], scope["path"], Headers(scope=scope), self._hosts)
        app = JSONResponse({"error": why}, 403) if why else self._app
        await app(scope, receive, guarded)


def hosts(port: int) -> frozenset[str]:
    """How a browser on this machine names the server; 80 is the port that goes without saying."""
    bare = NAMES if port == 80 else ()
    return frozenset({f"{name}:{port}" for name in NAMES} | set(bare))


def refusal(method: str, path: str, headers: Headers, hosts: Collection[str]) -> str | None:
    """Why a request isn't answered, if it isn't."""
    host = headers.get("host", "").lower()
    if host not in hosts or len(headers.getlist("host")) != 1:
        return "this server answers to 127.0.0.1 and localhost, at its own port, only"
    if headers.get("origin", f"http://{host}").lower() != f"http://{host}":
        return "this server answers its own page only"
    opened = method == "GET" and path == "/" and headers.get("sec-fetch-mode") == "navigate"
    site = headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") and not opened:
        return "this server answers its own page only"
    return None
