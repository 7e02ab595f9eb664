"""Access control: only this machine's browser, and only the server's own page, gets answers.

Another site can make a browser send requests to 127.0.0.1, by forms and scripts, or by a host name
that resolves to 127.0.0.1 (DNS rebinding). The first carry a foreign Origin, the second a foreign
Host.
"""

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST_NAMES = ("127.0.0.1", "localhost", "[::1]")
CONTENT_SECURITY_POLICY = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "connect-src 'self'", "img-src 'self' data:"),
        *("style-src 'self'", "style-src-attr 'unsafe-inline'"),  # look.js positions its elements
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
    )
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class SameOriginMiddleware:
    """Forward requests of the server's own page, and reject all others."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app, self._hosts = app, allowed_hosts(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] != "http":  # no WebSockets, no lifespan events
            return
        error = rejection(scope["method"], scope["path"], Headers(scope=scope), self._hosts)
        app = JSONResponse({"error": error}, 403) if error else self._app
        await app(scope, receive, send_with_headers)


def allowed_hosts(port: int) -> frozenset[str]:
    """Return the Host headers that this machine's browsers send; they omit port 80."""
    bare = HOST_NAMES if port == 80 else ()
    return frozenset({f"{name}:{port}" for name in HOST_NAMES} | set(bare))


def rejection(method: str, path: str, headers: Headers, hosts: Collection[str]) -> str | None:
    """Return the reason for rejecting a request; None if it is allowed."""
    host = headers.get("host", "").lower()
    if host not in hosts or len(headers.getlist("host")) != 1:
        return "this server answers only to 127.0.0.1 and localhost, at its own port"
    if headers.get("origin", f"http://{host}").lower() != f"http://{host}":
        return "this server answers only its own page"
    navigation = method == "GET" and path == "/" and headers.get("sec-fetch-mode") == "navigate"
    site = headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") and not navigation:
        return "this server answers only its own page"
    return None
