"""What the shipped NetworkPolicies let through and what they refuse: every process with everything around it, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from faultline.runtime.processes import PROCESSES
from tests.deploy.manifests import BASE
from tests.deploy.network_policy_rules import End, lets_through

US = "faultline"
POLICIES = [
    {**one, "metadata": {**one["metadata"], "namespace": US}}
    for one in yaml.safe_load_all((BASE / "network-policies.yaml").read_text())
]
OURS = {
    name: End(
        name,
        f"10.1.0.{number}",
        US,
        {"app.kubernetes.io/name": "faultline", "app.kubernetes.io/component": name},
        {"http": 8080, **({"gateway": 8081} if name == "gateway" else {})},
    )
    for number, name in enumerate([*PROCESSES, "topics", "check"], 1)
}
STRAY = End("a pod in our namespace", "10.1.0.99", US, {"app": "debug"})
DNS = End("dns", "10.1.1.1", "kube-system", {"k8s-app": "kube-dns"})
NODE_DNS = End("node-local dns", "169.254.20.10")
KAFKA = End("kafka", "10.1.2.1", "kafka")
PROMETHEUS = End("monitoring", "10.1.3.1", "monitoring")
INGRESS = End("ingress", "10.1.4.1", "ingress-nginx")
JOB = End("a training job", "10.1.5.1", "team-a", {"app": "train"})
PROXY = End("kube-proxy", "10.0.0.9", "kube-system", {"k8s-app": "kube-proxy"})
API = End("the API server", "10.0.0.1")
INTERNET = End("a service outside", "203.0.113.7")
INTERNET_6 = End("a service outside, IPv6", "2001:db8::7")
METADATA = End("the cloud's metadata", "169.254.169.254")
PLACES = (STRAY, DNS, NODE_DNS, KAFKA, PROMETHEUS, INGRESS, JOB, PROXY, API, INTERNET, INTERNET_6, METADATA)
PORTS = (22, 53, 80, 443, 465, 587, 2379, 3000, 4318, 6443, 8080, 8081, 9090, 9092, 9093, 9094, 9095, 10250)

POSTS = {"archive", "chat", "gateway", "notifier", "responder"}
ASKS = {"inventory", "responder", "check"}


def wanted_out(name: str) -> Iterator[tuple[str, int, str]]:
    """Where a process may connect to: place, port, protocol."""
    for place in (DNS, NODE_DNS):
        yield from ((place.name, 53, protocol) for protocol in ("TCP", "UDP"))
    yield from ((KAFKA.name, port, "TCP") for port in (9092, 9093, 9094))
    yield PROMETHEUS.name, 4318, "TCP"
    # A policy knows the API server and services outside as addresses alone: in the cluster and out of it.
    addresses = [one.name for one in (DNS, KAFKA, PROMETHEUS, INGRESS, JOB, PROXY, API, INTERNET, INTERNET_6)]
    if name in POSTS | ASKS:
        yield from ((place, 443, "TCP") for place in addresses)
    if name in ASKS:
        yield from ((place, 6443, "TCP") for place in addresses)
    if name == "notifier":
        yield from ((place, port, "TCP") for place in addresses for port in (465, 587))
        yield from ((PROMETHEUS.name, port, "TCP") for port in (9093, 3000))


@pytest.mark.parametrize("name", OURS)
def test_a_process_reaches_what_it_needs_and_nothing_else(name: str) -> None:
    reached = {
        (place.name, port, protocol)
        for place in PLACES
        if place is not STRAY
        for port in PORTS
        for protocol in ("TCP", "UDP")
        if lets_through(POLICIES, OURS[name], place, port, protocol)
    }
    assert reached == set(wanted_out(name))


def test_no_process_reaches_another_or_a_stray_pod_beside_it() -> None:
    for source in (*OURS.values(), STRAY):
        for target in (*OURS.values(), STRAY):
            for port in PORTS:
                assert not lets_through(POLICIES, source, target, port), (
                    f"{source.name} → {target.name}:{port}"
                )


@pytest.mark.parametrize("name", OURS)
def test_metrics_come_from_monitoring_and_hooks_through_the_ingress_and_nothing_else_comes_in(
    name: str,
) -> None:
    came = {
        (place.name, port)
        for place in PLACES
        for port in PORTS
        for protocol in ("TCP", "UDP")
        if lets_through(POLICIES, place, OURS[name], port, protocol)
    }
    wanted = {(PROMETHEUS.name, 8080)}
    if name == "gateway":
        wanted |= {(PROMETHEUS.name, 8081), (INGRESS.name, 8081)}
    assert came == wanted


def test_a_stray_pod_in_the_namespace_reaches_nothing_at_all() -> None:
    for place in PLACES:
        for port in PORTS:
            assert not lets_through(POLICIES, STRAY, place, port), place.name


def policy(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"metadata": {"namespace": US}, "spec": {"podSelector": {}, **spec}}]


A, B = End("a", "10.0.0.1", US, {"app": "a"}), End("b", "10.0.0.2", US, {"app": "b"}, {"web": 80})
CASES: list[tuple[str, list[dict[str, Any]], End, End, int, bool]] = [
    ("no policy opens all", [], A, B, 80, True),
    ("a policy without rules closes", policy({"policyTypes": ["Ingress"]}), A, B, 80, False),
    ("the other direction stays open", policy({"policyTypes": ["Ingress"]}), A, INTERNET, 80, True),
    ("no policyTypes means ingress", policy({}), A, B, 80, False),
    ("and egress where there are rules for it", policy({"egress": []}), A, INTERNET, 80, False),
    ("an empty rule opens all", policy({"ingress": [{}]}), JOB, B, 80, True),
    ("an empty pod selector is this namespace", policy({"ingress": [{"from": [{"podSelector": {}}]}]}), JOB, B, 80, False),
    ("an empty namespace selector is every one", policy({"ingress": [{"from": [{"namespaceSelector": {}}]}]}), JOB, B, 80, True),
    ("but none outside", policy({"ingress": [{"from": [{"namespaceSelector": {}}]}]}), INTERNET, B, 80, False),
    (
        "both selectors of one peer hold together",
        policy({"ingress": [{"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "a"}}}]}]}),
        JOB, B, 80, False,
    ),
    ("a port by name is the target's", policy({"ingress": [{"ports": [{"port": "web"}]}]}), A, B, 80, True),
    ("and no other", policy({"ingress": [{"ports": [{"port": "web"}]}]}), A, B, 81, False),
    ("a range of ports", policy({"ingress": [{"ports": [{"port": 80, "endPort": 90}]}]}), A, B, 90, True),
    ("UDP is not TCP", policy({"ingress": [{"ports": [{"port": 80, "protocol": "UDP"}]}]}), A, B, 80, False),
    (
        "an exception of a block",
        policy({"egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["203.0.113.0/24"]}}]}]}),
        A, INTERNET, 80, False,
    ),
    ("policies add up", policy({"policyTypes": ["Ingress"]}) + policy({"ingress": [{}]}), A, B, 80, True),
]  # fmt: skip


@pytest.mark.parametrize(("what", "policies", "source", "target", "port", "open_"), CASES)
def test_the_rules_of_the_api_are_those_that_are_evaluated(
    what: str, policies: list[dict[str, Any]], source: End, target: End, port: int, open_: bool
) -> None:
    assert lets_through(policies, source, target, port) is open_, what
