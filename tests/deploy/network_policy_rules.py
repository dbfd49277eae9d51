"""What NetworkPolicies let through, by the rules of the API (`networking.k8s.io/v1`), for tests without a network.

A pod is closed in a direction once a policy of that direction selects it, and then open for exactly what one of those policies
allows. A connection needs both ends: its source's egress and its target's ingress.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Policy = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class End:
    """One end of a connection: a pod, or with `namespace` empty an address outside of the cluster."""

    name: str
    address: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    """Its named ports."""


def lets_through(
    policies: Sequence[Policy], source: End, target: End, port: int, protocol: str = "TCP"
) -> bool:
    """Whether a connection from `source` to a port of `target` comes about."""
    return _open(policies, "Egress", source, target, target, port, protocol) and _open(
        policies, "Ingress", target, source, target, port, protocol
    )


def _open(
    policies: Sequence[Policy],
    direction: str,
    pod: End,
    peer: End,
    target: End,
    port: int,
    protocol: str,
) -> bool:
    here = [
        policy
        for policy in policies
        if pod.namespace
        and policy["metadata"]["namespace"] == pod.namespace
        and direction in _types(policy["spec"])
        and matches(policy["spec"]["podSelector"], pod.labels)
    ]
    if not here:
        return True
    rules = [rule for policy in here for rule in policy["spec"].get(direction.lower(), ())]
    side = "to" if direction == "Egress" else "from"
    return any(
        _is_peer(rule.get(side) or (), pod, peer)
        and _is_port(rule.get("ports") or (), target, port, protocol)
        for rule in rules
    )


def _types(spec: Mapping[str, Any]) -> set[str]:
    return set(spec.get("policyTypes") or ({"Ingress"} | ({"Egress"} if "egress" in spec else set())))


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects; an empty one selects everything."""
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get("matchExpressions", ()):
        found = labels.get(one["key"])
        holds = {
            "In": found in one.get("values", ()),
            "NotIn": found not in one.get("values", ()),
            "Exists": found is not None,
            "DoesNotExist": found is None,
        }[one["operator"]]
        if not holds:
            return False
    return True


def _is_peer(peers: Sequence[Mapping[str, Any]], pod: End, peer: End) -> bool:
    if not peers:
        return True
    for one in peers:
        if "ipBlock" in one:
            block = one["ipBlock"]
            address = ipaddress.ip_address(peer.address)
            if _within(address, block["cidr"]) and not any(
                _within(address, e) for e in block.get("except", ())
            ):
                return True
            continue
        if not peer.namespace:
            continue
        spaces = one.get("namespaceSelector")
        in_space = (
            peer.namespace == pod.namespace
            if spaces is None
            else matches(spaces, {"kubernetes.io/metadata.name": peer.namespace})
        )
        if in_space and matches(one.get("podSelector") or {}, peer.labels):
            return True
    return False


def _within(address: ipaddress.IPv4Address | ipaddress.IPv6Address, cidr: str) -> bool:
    network = ipaddress.ip_network(cidr)
    return address.version == network.version and address in network


def _is_port(ports: Sequence[Mapping[str, Any]], target: End, port: int, protocol: str) -> bool:
    if not ports:
        return True
    for one in ports:
        if one.get("protocol", "TCP") != protocol:
            continue
        wanted = one.get("port")
        if wanted is None:
            return True
        if isinstance(wanted, str):
            if target.ports.get(wanted) == port:
                return True
        elif wanted <= port <= one.get("endPort", wanted):
            return True
    return False
