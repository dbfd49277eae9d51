"""What the API server says: version, clock, the rights of these credentials, and whether pools and nodes that are named exist.

Each right is asked for with a SelfSubjectAccessReview, which the server answers and keeps nothing of.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from connectors.kubernetes.client import Cluster, path_of
from connectors.kubernetes.errors import Forbidden, MaybeApplied, NotFound
from faultline.checks.cluster_rights import Right, how_to_give, needed
from faultline.checks.finding import CheckFinding
from faultline.checks.http_probe import clock_finding
from faultline.runtime.settings import Settings
from streams.config.rollout_settings import EVERY_POOL
from streams.inventory.names import names
from streams.model.clock import utc_now
from streams.model.errors import BadInput, Permanent, Temporary, Unreachable

OLDEST = (1, 24)
"""The minor version since which batch Jobs can be suspended in every cluster (KEP-2232)."""

REVIEWS_AT_ONCE = 16


async def probe_cluster(settings: Settings, processes: tuple[str, ...]) -> list[CheckFinding]:
    """Every finding about the API server, for the credentials of these settings.

    Raises:
        Unreachable: when it does not answer.
        ConfigError: when there are no credentials to ask with.
    """
    async with await Cluster.connect(settings.kubernetes) as cluster:
        try:
            version = await cluster.get("/version")
            found = [
                *_version(version),
                *clock_finding("the API server", await cluster.server_date(), utc_now()),
            ]
            served = await _served(cluster)
            who = await _who(cluster)
            found += await _rights(cluster, settings, processes, served, who)
            found += await _nodes(cluster, settings)
        except Forbidden as error:
            remedy = "give kubernetes.kubeconfig, or the pod's service account, valid credentials"
            return [CheckFinding("fault", "kubernetes", str(error), remedy)]
        except Permanent as error:
            remedy = "ask the API server itself: it does not answer what every Kubernetes does"
            return [CheckFinding("warning", "kubernetes", str(error), remedy)]
        except (Temporary, MaybeApplied) as error:
            raise Unreachable(f"the API server at {cluster.url}: {error}") from error
    return found


def _version(told: dict[str, Any]) -> Iterator[CheckFinding]:
    numbers = re.match(r"v(\d+)\.(\d+)", str(told.get("gitVersion", "")))
    if numbers is None:
        return
    if (int(numbers[1]), int(numbers[2])) < OLDEST:
        what = f"{told['gitVersion']} is older than {OLDEST[0]}.{OLDEST[1]}"
        yield CheckFinding(
            "warning", "version of the API server", what, "upgrade the cluster before runbooks act on it"
        )


async def _served(cluster: Cluster) -> frozenset[str]:
    answer = await cluster.get("/apis")
    return frozenset(str(group.get("name")) for group in answer.get("groups", []))


async def _who(cluster: Cluster) -> str:
    """Whose rights these are, as the server sees it."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await cluster.create(path_of("authentication.k8s.io/v1", "selfsubjectreviews"), body)
    except (NotFound, Forbidden):
        return "these credentials"
    return str(answer.get("status", {}).get("userInfo", {}).get("username") or "these credentials")


async def _rights(
    cluster: Cluster, settings: Settings, processes: tuple[str, ...], served: frozenset[str], who: str
) -> list[CheckFinding]:
    """One finding for each process and component of the manifests of which something is not allowed."""
    slots = asyncio.Semaphore(REVIEWS_AT_ONCE)

    async def refused(right: Right, verb: str) -> bool:
        async with slots:
            return not await _allowed(cluster, right, verb)

    asked = [
        (right, verb, is_needed)
        for right, is_needed in needed(settings, own_processes(who, processes), served)
        for verb in right.verbs
    ]
    answers = await asyncio.gather(*(refused(right, verb) for right, verb, _ in asked))
    missing: dict[tuple[str, str, bool], list[tuple[Right, str]]] = {}
    for (right, verb, is_needed), is_missing in zip(asked, answers, strict=True):
        if is_missing:
            missing.setdefault((right.process, right.component, is_needed), []).append((right, verb))
    return [
        _missing(who, process, component, is_needed, rights)
        for (process, component, is_needed), rights in missing.items()
    ]


def own_processes(who: str, processes: tuple[str, ...]) -> tuple[str, ...]:
    """The processes whose rights these credentials should have: in a pod of one of them, of that one alone."""
    account = who.rpartition(":")[2] if who.startswith("system:serviceaccount:") else ""
    return (account,) if account in processes else processes


def _missing(
    who: str, process: str, component: str, is_needed: bool, rights: list[tuple[Right, str]]
) -> CheckFinding:
    by_place: dict[str, list[str]] = {}
    for right, verb in rights:
        place = f" in {right.namespace}" if right.namespace else ""
        resource = f"{right.resource}.{right.group}" if right.group else right.resource
        by_place.setdefault(f"{resource}{place}", []).append(verb)
    each = "; ".join(f"{', '.join(verbs)} {place}" for place, verbs in by_place.items())
    place, verbs = next(iter(by_place.items()))
    resource, _, namespace = place.partition(" in ")
    command = f"kubectl auth can-i {verbs[0]} {resource} --as {who}" if ":" in who else ""
    if command and namespace:
        command += f" --namespace {namespace}"
    what = f"{who} may not {each}, as {process} does"
    if not is_needed:
        what += "; what the cluster has of this kind is not seen"
    return CheckFinding(
        "fault" if is_needed else "note", "rights in the cluster", what, how_to_give(component), command
    )


async def _allowed(cluster: Cluster, right: Right, verb: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": verb, "group": right.group, "resource": resource, "subresource": subresource,
        "namespace": right.namespace or "", "name": right.names[0] if right.names else "",
    }  # fmt: skip
    body: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await cluster.create(path_of("authorization.k8s.io/v1", "selfsubjectaccessreviews"), body)
    return answer.get("status", {}).get("allowed") is True


async def _nodes(cluster: Cluster, settings: Settings) -> list[CheckFinding]:
    """Pools and nodes that settings and the topology file name, and that the cluster does not have."""
    wanted = settings.inventory
    if not (settings.responder.rollout or wanted.topology_file):
        return []
    try:
        nodes = await cluster.list_all(path_of("v1", "nodes"))
    except Permanent as error:
        what = f"pools and nodes cannot be compared: {error}"
        return [CheckFinding("warning", "nodes of the cluster", what, how_to_give("base"))]
    return [*_rollout_findings(settings, nodes), *_topology_findings(settings, nodes)]


def _rollout_findings(settings: Settings, nodes: list[dict[str, Any]]) -> Iterator[CheckFinding]:
    labels = names().node_labels
    pools: dict[str | None, set[str]] = {}
    for node in nodes:
        carried = node["metadata"].get("labels") or {}
        pool = next((carried[key] for key in labels.pool if key in carried), None)
        pools.setdefault(pool, set()).add(node["metadata"]["name"])
    known = ", ".join(sorted(pool for pool in pools if pool)) or "none"
    for number, row in enumerate(settings.responder.rollout):
        if row.pool == EVERY_POOL:
            continue
        where = f"responder.rollout.{number}"
        if row.pool not in pools:
            what = f"no node of the cluster is in pool {row.pool}; pools are {known}"
            yield CheckFinding("fault", f"{where}.pool", what, "correct the name, or remove the row")
        elif not isinstance(row.canary_nodes, int):
            for pattern in row.canary_nodes:
                if not any(fnmatchcase(name, pattern) for name in pools[row.pool]):
                    what = f"no node of pool {row.pool} is called {pattern}"
                    yield CheckFinding(
                        "fault", f"{where}.canary_nodes", what, "correct the name, or take it out"
                    )


def _topology_findings(settings: Settings, nodes: list[dict[str, Any]]) -> Iterator[CheckFinding]:
    from streams.inventory.topology_file import read_topology

    file = settings.inventory.topology_file
    if file is None:
        return
    try:
        cabling = read_topology(settings.cluster, file.read_text(encoding="utf-8"), utc_now())
    except (BadInput, OSError, UnicodeDecodeError):
        return  # told of by the check of files
    there = {node["metadata"]["name"] for node in nodes}
    unknown = sorted({link.node for link in cabling.links if link.node is not None} - there)
    if unknown:
        what = f"{len(unknown)} of its hosts are no nodes of the cluster: {', '.join(unknown[:5])}" + (
            " …" if unknown[5:] else ""
        )
        yield CheckFinding(
            "warning",
            f"inventory.topology_file {file}",
            what,
            "correct the names: cables of unknown hosts explain nothing",
        )
