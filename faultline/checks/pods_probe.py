"""Faultline's own pods: not ready, restarted again and again, of different releases; and whether anything scrapes them.

Where these credentials may not list pods nothing is found: a process may not, by the manifests, outside its own rights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from connectors.kubernetes.client import Cluster, path_of
from connectors.kubernetes.errors import Forbidden, MaybeApplied, NotFound
from faultline.checks.cluster_rights import OWN
from faultline.checks.finding import CheckFinding
from faultline.runtime.settings import Settings
from streams.model.errors import Temporary, Unreachable

SELECTOR = "app.kubernetes.io/name=faultline"
RESTARTS = 5
MONITORS = "monitoring.coreos.com/v1"


async def probe_pods(settings: Settings) -> list[CheckFinding]:
    """Every finding about the pods of the namespace `faultline`.

    Raises:
        Unreachable: when the API server does not answer.
        ConfigError: when there are no credentials to ask with.
    """
    async with await Cluster.connect(settings.kubernetes) as cluster:
        try:
            pods = await _listed(cluster, "v1", "pods")
            if not pods:
                return []
            found = list(pod_findings(pods))
            monitors = [await _listed(cluster, MONITORS, kind) for kind in ("podmonitors", "servicemonitors")]
        except (Temporary, MaybeApplied) as error:
            raise Unreachable(f"the API server at {cluster.url}: {error}") from error
    if all(one is not None for one in monitors) and not any(monitors):
        what = f"no PodMonitor or ServiceMonitor selects {SELECTOR} in {OWN}, though the operator of Prometheus is installed"
        command = f"kubectl -n {OWN} get podmonitors,servicemonitors"
        found.append(
            CheckFinding(
                "note", "monitoring", what, "apply the monitors of k8s/, or scrape the pods", command
            )
        )
    return found


async def _listed(cluster: Cluster, api_version: str, plural: str) -> list[dict[str, Any]] | None:
    """The objects of ours; None where they may not be listed, or the kind is not served."""
    try:
        path = path_of(api_version, plural, namespace=OWN)
        return await cluster.list_all(path, query={"labelSelector": SELECTOR})
    except (Forbidden, NotFound):
        return None


def pod_findings(pods: list[dict[str, Any]]) -> Iterator[CheckFinding]:
    """What is wrong with the pods. Pure."""
    releases: dict[str, list[str]] = {}
    for pod in pods:
        about, status = pod["metadata"], pod.get("status", {})
        name = about["name"]
        if status.get("phase") in ("Succeeded", "Failed") or about.get("deletionTimestamp"):
            continue
        images = [one.get("image", "") for one in pod.get("spec", {}).get("containers", [])[:1]]
        releases.setdefault(images[0] if images else "", []).append(name)
        states = status.get("containerStatuses", [])
        for state in states:
            last = state.get("lastState", {}).get("terminated", {})
            if last.get("reason") == "OOMKilled":
                what = f"pod {name} was killed for its memory, at {last.get('finishedAt')}"
                yield CheckFinding(
                    "fault", "pods", what, "raise its memory limit (docs/sizing.md)",
                    f"kubectl -n {OWN} get pod {name} -o jsonpath='{{.spec.containers[0].resources}}'",
                )  # fmt: skip
            elif state.get("restartCount", 0) >= RESTARTS:
                why = last.get("reason") or "an unknown reason"
                code = last.get("exitCode")
                what = f"pod {name} was restarted {state['restartCount']} times, last for {why} (exit code {code})"
                yield CheckFinding(
                    "fault", "pods", what, "read why its last one ended",
                    f"kubectl -n {OWN} logs {name} --previous --tail=50",
                )  # fmt: skip
        conditions = {one["type"]: one for one in status.get("conditions", [])}
        ready = conditions.get("Ready", {})
        if ready.get("status") != "True":
            held = (state.get("state", {}).get("waiting", {}).get("reason") for state in states)
            waiting = next((reason for reason in held if reason), None)
            unscheduled = conditions.get("PodScheduled", {}).get("message")
            why = waiting or unscheduled or ready.get("message") or "no reason is told"
            what = f"pod {name} is not ready since {ready.get('lastTransitionTime', 'its start')}: {why}"
            yield CheckFinding(
                "fault",
                "pods",
                what,
                "read its events and its log",
                f"kubectl -n {OWN} describe pod {name}",
            )
    if len(releases) > 1:
        told = "; ".join(f"{image}: {len(names)}" for image, names in sorted(releases.items()))
        yield CheckFinding(
            "warning", "versions", f"pods run different images: {told}", "finish the upgrade, or roll it back",
            f"kubectl -n {OWN} get pods -l {SELECTOR} -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[0].image",
        )  # fmt: skip
