"""The demo's processes find their ports."""

from __future__ import annotations

import socket

import pytest

from sandbox.demo import stack
from tests.testbed.children import free_port


def test_the_demo_takes_ports_on_which_nobody_listens_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", taken := free_port()))
        monkeypatch.setattr(stack, "PORTS", range(taken, taken + 100))
        ports = stack._free_ports(2)
    assert taken not in ports
    assert len(set(ports)) == 2
