"""Decides which requests are answered. Every request passes here before any route.

    Host       must name this server: another name may be a page of an attacker whose name was rebound to this address
    site       requests for data must not come from a page of another site
    cookie     needed for everything unless the server listens on loopback only
    key        needed for every action, in the header `X-Hive-Key`
    Origin     of an action must be this server
    size       of the head and of the body of a request is limited

`?token=...` in the URL that `hive web` prints is exchanged for cookie and key. The cookie cannot be read by scripts and
is not sent by pages of other sites. But browsers send cookies to all ports of a host, so another server on this machine
may see it. The key therefore travels in the fragment of the address that the browser is redirected to, which is sent to
no server, and the page keeps it in a store that belongs to this host and port.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Sequence
from http import cookies
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEAD_BYTES = 1 << 14  # maximum bytes of the head of a request: the id of 32 runs takes 2 kilobytes
BODY_BYTES = 1 << 16  # maximum bytes of a request's body: an action with 32 keys takes a few kilobytes
TOKEN_BYTES = 24  # random bytes of a secret
LENGTH_DIGITS = 19  # maximum digits of a declared length; Python refuses to convert thousands of digits
KEY = "x-hive-key"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
READING = ("GET", "HEAD")


def is_loopback(host: str) -> bool:
    """Return whether a server that binds to this address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names_of(host: str) -> tuple[str, ...]:
    """Return the names for which a server that binds to `host` is known, without ports."""
    names = (f"[{host}]" if ":" in host else host).lower()
    if is_loopback(host):
        return tuple({*LOOPBACK, names})
    return (*LOOPBACK, names, socket.gethostname().lower(), socket.getfqdn().lower())


class Guard:
    """Wraps an application. Each server draws its own token, cookie and key."""

    def __init__(self, app: ASGIApp, host: str, port: int, names: Sequence[str] = ()) -> None:
        self.app = app
        self.names = names or names_of(host)
        self.public = not is_loopback(host)
        self.cookie = f"hive-{port}"  # browsers send cookies to all ports of a host
        self.token, self.reading_key, self.acting_key = (secrets.token_urlsafe(TOKEN_BYTES) for _ in range(3))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        may_act = _equal(headers.get(KEY, ""), self.acting_key)
        refusal = self._refusal(scope, headers, may_act)
        if given := self._token_in_url(scope):
            await self._exchange(given, refusal)(scope, receive, _with_headers(send))
        elif refusal is not None:
            await refusal(scope, receive, _with_headers(send))
        else:
            scope["state"] = {**scope.get("state", {}), "may_act": may_act}
            await self.app(scope, _limited(receive), _with_headers(send))

    def _exchange(self, given: str, refusal: JSONResponse | None) -> JSONResponse | RedirectResponse:
        if refusal is not None and refusal.status_code != 401:
            return refusal
        if not _equal(given, self.token):
            return _refused(401, "this token is not that of this server", "open the URL that `hive web` printed last")
        response = RedirectResponse(f"/#key={self.acting_key}", 303)
        if self.public:
            response.set_cookie(self.cookie, self.reading_key, httponly=True, samesite="strict", path="/")
        return response

    def _refusal(self, scope: Scope, headers: Headers, may_act: bool) -> JSONResponse | None:
        """Return the answer to a request that is refused; None for one that is allowed."""
        if sum(len(name) + len(value) for name, value in headers.raw) + len(scope["query_string"]) > HEAD_BYTES:
            return _refused(431, f"the head of the request is longer than {HEAD_BYTES:,} bytes", "send less")
        host = headers.get("host", "").lower()
        if len(headers.getlist("host")) != 1 or not self._is_ours(host):
            return _refused(421, "this server does not have the name in `Host`", f"its names: {', '.join(self.names)}")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and scope["path"] != "/":
            return _refused(403, "requests of other sites are refused", "open the page in a tab of its own")
        return self._missing_right(scope, headers, may_act)

    def _missing_right(self, scope: Scope, headers: Headers, may_act: bool) -> JSONResponse | None:
        """Return the answer to a request of this site that lacks a secret, has another origin, or is too long."""
        acts = scope["method"] not in READING
        if (acts and not may_act) or (self.public and not self._may_read(headers)):
            return _refused(401, "this needs the token", "open the URL that `hive web` printed last")
        if acts and headers.get("origin", "").lower() != f"http://{headers.get('host', '').lower()}":
            return _refused(403, "`Origin` is not this server", "send the request from the page of `hive web`")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > LENGTH_DIGITS or int(length) > BODY_BYTES:
            return _refused(413, f"the request is longer than {BODY_BYTES:,} bytes", "send less")
        return None

    def _is_ours(self, host: str) -> bool:
        """Return whether `Host` is a name of this server. Any port: a tunnel may have another one.

        A server that is not on loopback is also known by any address, which, unlike a name, cannot be rebound.
        """
        name, _, port = host.rpartition(":") if ":" in host and not host.endswith("]") else (host, "", "")
        if port and not port.isdecimal():
            return False
        return name in self.names or (self.public and _is_address(name.strip("[]")))

    def _may_read(self, headers: Headers) -> bool:
        try:
            found = cookies.SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except cookies.CookieError:
            return False
        return found is not None and _equal(found.value, self.reading_key)

    def _token_in_url(self, scope: Scope) -> str:
        if scope["path"] != "/" or scope["method"] not in READING:
            return ""
        try:
            query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=8)
        except ValueError:  # too many fields
            return ""
        return str(query.get("token", [""])[0])


def _equal(given: str, secret: str) -> bool:
    """Return whether both are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(), secret.encode())


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _refused(status: int, error: str, hint: str) -> JSONResponse:
    return JSONResponse({"error": error, "hint": hint}, status)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending


def _limited(receive: Receive) -> Receive:
    """Receive a body in pieces up to BODY_BYTES; a longer one, whose length was not declared, ends as a disconnect."""
    total = 0

    async def receiving() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        return message if total <= BODY_BYTES else {"type": "http.disconnect"}

    return receiving
