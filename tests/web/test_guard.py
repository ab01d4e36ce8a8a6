"""Which requests are answered: Host, Origin, token, sizes; and the headers of every answer."""

from __future__ import annotations

import json
from http import cookies
from typing import TYPE_CHECKING

import pytest

from hive.web.guard import BODY_BYTES, HEAD_BYTES, HEADERS, Guard, is_loopback, names_of

if TYPE_CHECKING:
    from conftest import Reply, Web

ACTION = json.dumps({"run": "cartpole-1", "action": "save"}).encode()


ORIGIN = "http://127.0.0.1:4483"


def cookie_of(reply: Reply) -> str:
    ((name, morsel),) = cookies.SimpleCookie(reply.headers["set-cookie"]).items()
    return f"{name}={morsel.value}"


def key_of(reply: Reply) -> str:
    assert reply.status == 303
    return reply.headers["location"].removeprefix("/#key=")


def test_reading_on_loopback_needs_no_token_and_every_answer_has_the_headers(web: Web) -> None:
    for path in ("/", "/api/runs", "/static/app.js", "/nothing"):
        reply = web.ask(path)
        assert reply.status == (404 if path == "/nothing" else 200)
        assert {name: reply.headers[name.lower()] for name in HEADERS} == HEADERS
    assert HEADERS["Content-Security-Policy"].startswith("default-src 'self';")
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize("host", ["127.0.0.1:4483", "localhost:4483", "LOCALHOST:9000", "[::1]:4483", "localhost"])
def test_a_host_of_this_server_is_answered_at_any_port(web: Web, host: str) -> None:
    assert web.ask("/api/runs", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:4483", "127.0.0.1.evil.example:4483", "10.0.0.1:4483", "", "localhost:x", None],
)
def test_a_foreign_host_is_refused(web: Web, host: str | None) -> None:
    reply = web.ask("/api/runs", host=host)
    assert reply.status == 421
    assert "Host" in reply.data["error"]
    assert reply.headers["content-security-policy"]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_of_other_sites_are_refused_except_for_the_page_itself(web: Web, site: str) -> None:
    assert web.ask("/api/runs", sec_fetch_site=site).status == 403
    assert web.ask("/", sec_fetch_site=site).status == 200


def test_an_action_needs_the_key_and_the_origin(web: Web) -> None:
    _, supervisor = web.live()
    assert web.ask("/api/actions", "POST", ACTION, origin=ORIGIN).status == 401
    key = key_of(web.ask(f"/?token={web.guard.token}"))
    for wrong in (None, "http://evil.example", "https://127.0.0.1:4483", "null", "http://localhost:4483"):
        assert web.ask("/api/actions", "POST", ACTION, origin=wrong, x_hive_key=key).status == 403
    for other in ("wrong", "", web.guard.token, web.guard.reading_key, "\xe9"):
        assert web.ask("/api/actions", "POST", ACTION, origin=ORIGIN, x_hive_key=other).status == 401
    assert (
        web.ask("/api/actions", "POST", ACTION, origin=ORIGIN, x_hive_key=key, sec_fetch_site="same-site").status == 403
    )
    assert supervisor.steered == []
    reply = web.ask("/api/actions", "POST", ACTION, origin=ORIGIN, x_hive_key=key, sec_fetch_site="same-origin")
    assert (reply.status, supervisor.steered) == (200, ["save"])
    assert reply.data["notice"].startswith("a checkpoint is being written")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get"])
def test_other_methods_are_not_answered_without_the_key(web: Web, method: str) -> None:
    assert web.ask("/api/actions", method, ACTION, origin=ORIGIN).status == 401


def test_a_cookie_that_another_server_of_this_host_has_seen_does_not_act(web: Web) -> None:
    _, supervisor = web.live()
    guard = Guard(web.site.app, "0.0.0.0", 4483)
    cookie = cookie_of(web.ask(f"/?token={guard.token}", app=guard))
    for key in (None, cookie.partition("=")[2]):
        assert (
            web.ask("/api/actions", "POST", ACTION, app=guard, origin=ORIGIN, cookie=cookie, x_hive_key=key).status
            == 401
        )
    assert web.ask("/api/session", app=guard, cookie=cookie).data["may_act"] is False
    assert supervisor.steered == []


def test_the_token_of_the_url_becomes_a_key_in_the_fragment(web: Web) -> None:
    reply = web.ask(f"/?token={web.guard.token}")
    assert web.guard.token not in str(reply.headers)
    assert "set-cookie" not in reply.headers, "reading on loopback needs none"
    assert web.ask("/api/session", x_hive_key=key_of(reply)).data["may_act"] is True
    assert web.ask("/api/session").data["may_act"] is False
    assert web.ask("/?token=wrong").status == 401
    assert web.ask("/?" + "&".join(["token=a"] * 9)).status == 200  # too many fields count as none


@pytest.mark.parametrize("garbage", ["hive-4483", "a=b; =", 'hive-4483="', "hive-4483=\xe9", "[]=1"])
def test_a_garbled_cookie_is_no_cookie(web: Web, garbage: str) -> None:
    assert web.ask("/api/session", app=Guard(web.site.app, "0.0.0.0", 4483), cookie=garbage).status == 401


def test_at_another_address_everything_needs_the_token(web: Web) -> None:
    guard = Guard(web.site.app, "0.0.0.0", 4483)
    for path in ("/", "/api/runs", "/static/app.js", "/api/session"):
        assert web.ask(path, app=guard, host="192.168.1.5:4483").status == 401
    reply = web.ask(f"/?token={guard.token}", app=guard, host="192.168.1.5:4483")
    assert {"httponly", "samesite=strict"} <= {part.strip().lower() for part in reply.headers["set-cookie"].split(";")}
    cookie = cookie_of(reply)
    assert web.ask("/api/runs", app=guard, host="192.168.1.5:4483", cookie=cookie).status == 200
    assert web.ask("/api/runs", app=guard, host="evil.example:4483", cookie=cookie).status == 421


def test_long_requests_are_refused(web: Web) -> None:
    sent = {"origin": ORIGIN, "x_hive_key": key_of(web.ask(f"/?token={web.guard.token}"))}
    for length in (str(BODY_BYTES + 1), "-1", "9" * 5000, "1e3", "²"):
        assert web.ask("/api/actions", "POST", b"", content_length=length, **sent).status == 413
    assert web.ask("/api/actions", "POST", b"x" * (BODY_BYTES + 1), **sent).status == 413, "without a declared length"
    for long in ({"cookie": '="' + "\\" * HEAD_BYTES}, {f"a{n}": "b" * 100 for n in range(HEAD_BYTES // 100)}):
        assert web.ask("/api/runs", **long).status == 431
    assert web.ask(f"/api/runs?{'a' * HEAD_BYTES}").status == 431


def test_names_of_addresses() -> None:
    assert [
        is_loopback(host) for host in ("127.0.0.1", "127.5.5.5", "::1", "localhost", "0.0.0.0", "host.example")
    ] == [
        *(True, True, True, True),
        *(False, False),
    ]
    assert set(names_of("127.0.0.1")) == {"localhost", "127.0.0.1", "[::1]"}
    assert "[fe80::1]" in names_of("FE80::1")
