"""Nodes, pods and ports that signals name and the inventory does not list."""

from __future__ import annotations

from collections.abc import Container

from streams.correlate.state.store import State

MAX_UNLISTED = 5000
"""Of each kind. Log text can name any number of them."""


class Unlisted:
    """Names of such places by their kind: `node`, `pod` or `port`."""

    def __init__(self, state: State) -> None:
        self.names: dict[str, set[str]] = {
            "node": {n for n, node in state.nodes.items() if node.fact is None},
            "pod": {n for n, pod in state.pods.items() if not pod.tenancies},
            "port": {n for n, port in state.ports.items() if port.link is None},
        }

    def admits(self, kind: str, name: str, known: Container[str]) -> bool:
        """Whether a signal of that place is kept: always at a known place, at a new one while there is room for it."""
        if name in known:
            return True
        if len(self.names[kind]) >= MAX_UNLISTED:
            return False
        self.names[kind].add(name)
        return True
