"""Ports and addresses. Serving itself is shown by tests/live/test_web.py."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from hive.errors import UsageError
from hive.web import server
from hive.web.server import bind


def test_a_taken_default_port_is_replaced_and_a_given_one_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        taken = other.getsockname()[1]
        monkeypatch.setattr(server, "PORT", taken)
        with closing(bind("127.0.0.1", None)) as listener:
            assert listener.getsockname()[1] not in (0, taken)
        with pytest.raises(UsageError, match=f"cannot listen at 127.0.0.1, port {taken}: address already in use"):
            bind("127.0.0.1", taken)


@pytest.mark.parametrize(
    ("host", "port"), [("203.0.113.1", None), ("no.such.host.invalid", None), ("127.0.0.1", 70_000)]
)
def test_addresses_that_cannot_be_bound(host: str, port: int | None) -> None:
    with pytest.raises(UsageError, match="cannot listen at"):
        bind(host, port)
