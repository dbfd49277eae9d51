"""Which storage it is: monitoring names what nodes only hang on, and one storage under several names is one incident."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streams.model.entity import Entity
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import CLUSTER, World, _signal, at, cluster, link, port, sign

NODES = [f"n{i:02d}" for i in range(1, 41)]
JOBS: dict[str, Sequence[str]] = {"llama": NODES[:16], "gemma": NODES[16:32]}
HIT = NODES[:16]


def world(*more: Any) -> World:
    return World([*cluster(JOBS, spare=NODES), *more])


def alert(
    seconds: float,
    name: str = "LustreOSTUnresponsive",
    *,
    host: str | None = None,
    gone: bool = True,
    cleared: bool = False,
    **names: str,
) -> Signal:
    """What the detector makes of an alert about a storage, at a host that its labels name or at the storage itself."""
    given = (names[n] for n in ("storage_cluster", "filesystem", "server", "target") if n in names)
    place = Entity(CLUSTER, node=host) if host else Entity(CLUSTER, storage=next(given))
    severity = Severity.ERROR if gone else Severity.WARNING
    attributes = {"subtype": "remote_filesystem", "alert": name, **names}
    return _signal("node.storage", place, seconds, attributes, severity=severity, cleared=cleared)  # type: ignore[arg-type]


def hung(nodes: Sequence[str], seconds: float) -> list[Signal]:
    return [sign("node.kernel", n, seconds + 2 * i, "hung_task") for i, n in enumerate(nodes)]


def lost(nodes: Sequence[str], seconds: float, subtype: str, **names: Any) -> list[Signal]:
    return [sign("node.storage", n, seconds + i, subtype, **names) for i, n in enumerate(nodes)]


def standing(seen: World) -> list[Incident]:
    over = (IncidentState.MERGED, IncidentState.SUPPRESSED)
    return [i for i in seen.incidents() if i.state not in over]


def told(
    signals: Sequence[Signal], *facts: Any, until: float = 1500, seed: int | None = None
) -> list[Incident]:
    seen = world(*facts)
    seen.play(signals, until, seed)
    return standing(seen)


SEEDS = pytest.mark.parametrize("seed", [None, 1, 2])

NAMED = {
    "a target": (alert(240, system="lustre", target="lfs1-OST0004"), "lfs1-OST0004"),
    "a target, by its server": (
        alert(240, host="oss-4", system="lustre", target="lfs1-OST0004"), "lfs1-OST0004"
    ),
    "a cluster": (alert(240, "WekaClusterUnavailable", system="wekafs", storage_cluster="wk-7"), "wk-7"),
    "a server": (alert(90, "NFSServerDown", system="nfs", server="filer-3"), "filer-3"),
    "a server, as the alert's own host": (alert(240, "FilerDown", host="filer-3", system="nfs"), "filer-3"),
    "a file system": (alert(-120, "ParallelFilesystemDown", filesystem="scratch"), "scratch"),
    "an object store": (
        alert(240, "S3EndpointUnreachable", system="object_store", server="s3.example.net"), "s3.example.net"
    ),
}  # fmt: skip


@SEEDS
@pytest.mark.parametrize("name", NAMED)
def test_the_storage_on_which_tasks_hang_is_named_by_its_monitoring(name: str, seed: int | None) -> None:
    one, called = NAMED[name]
    (incident,) = told([one, *hung(HIT, 120)], seed=seed)
    assert (incident.family, incident.root.key) == ("storage_fault", f"storage/{called}")
    assert str(one.attributes["alert"]) in incident.reason
    assert "no line names" not in incident.reason


def test_it_is_over_when_its_monitoring_says_so() -> None:
    signals = [alert(240, system="lustre", target="lfs1-OST0004"), *hung(HIT, 120)]
    over = alert(2000, cleared=True, system="lustre", target="lfs1-OST0004")
    (incident,) = told(signals, until=2400)
    assert incident.closed_at is None
    (incident,) = told([*signals, over], until=2400)
    assert incident.closed_at is not None


def test_beside_such_an_alert_a_few_nodes_are_enough() -> None:
    few = hung(HIT[:4], 120)
    assert told(few) == []
    (incident,) = told([alert(180, system="lustre", target="lfs1-OST0004"), *few])
    assert (incident.root.storage, incident.certainty) == ("lfs1-OST0004", Certainty.LIKELY)


def test_of_several_storages_none_is_guessed() -> None:
    both = [
        alert(200, target="lfs1-OST0004", system="lustre"),
        alert(210, "NFSServerDown", server="filer-3", system="nfs"),
    ]
    (incident,) = [i for i in told([*both, *hung(NODES[:24], 120)], until=700) if i.facts["nodes_hit"]]
    assert incident.root.storage == "not named"


ONE_STORAGE: dict[str, tuple[list[Signal], str]] = {
    "by address and by name": (
        [*lost(HIT, 100, "nfs", server="10.0.8.40"), alert(300, "NFSServerDown", system="nfs", server="filer-3")],
        "10.0.8.40",
    ),
    "with and without a domain": (
        [*lost(HIT[:8], 100, "nfs", server="filer-3.example"), *lost(HIT[8:], 102, "nfs", server="filer-3")],
        "filer-3",
    ),
    "by kind alone and by its cluster": (
        [*lost(HIT[:8], 100, "wekafs"), *lost(HIT[8:], 102, "wekafs", storage_cluster="wk-7")], "wk-7"
    ),
    "by kind alone, and an alert": (
        [*lost(HIT, 100, "wekafs"), alert(300, "WekaUnreachable", system="wekafs", storage_cluster="wk-7")],
        "wk-7",
    ),
    "by cluster and by file system, where lines give both": (
        [
            *lost(HIT[:5], 100, "wekafs", storage_cluster="wk-7"),
            *lost(HIT[5:10], 102, "wekafs", filesystem="scratch"),
            *lost(HIT[10:], 104, "wekafs", storage_cluster="wk-7", filesystem="scratch"),
        ],
        "scratch",
    ),
    "by targets, and an alert on the file system": (
        [
            *lost(HIT[:8], 100, "lustre", target="lfs1-OST0001"),
            *lost(HIT[8:], 100, "lustre", target="lfs1-OST0002"),
            alert(300, "LustreUnavailable", system="lustre", filesystem="lfs1"),
        ],
        "lfs1",
    ),
    "by its mount on some": (
        [
            *lost(HIT, 100, "lustre", target="lfs1-OST0001"),
            *(alert(200, "NodeFilesystemDeviceError", host=n, system="lustre", filesystem="lfs1", server="10.0.8.1@o2ib")
              for n in HIT[:4]),
        ],
        "lfs1",
    ),
    "parts of one Ceph": (
        [*lost(HIT, 100, "ceph", device="osd3"), alert(300, "CephOSDDown", system="ceph", gone=False,
         storage_cluster="quark", target="osd.3")],
        "osd3",
    ),
    "several servers of one BeeGFS": (
        [*lost(HIT[:8], 100, "beegfs", peer="beegfs-storage s-1"), *lost(HIT[8:], 101, "beegfs", peer="beegfs-storage s-2")],
        "beegfs",
    ),
}  # fmt: skip


@SEEDS
@pytest.mark.parametrize("name", ONE_STORAGE)
def test_a_storage_that_is_seen_under_several_names_is_one_incident(name: str, seed: int | None) -> None:
    signals, called = ONE_STORAGE[name]
    (incident,) = told(signals, seed=seed)
    assert (incident.family, incident.root.key) == ("storage_fault", f"storage/{called}")
    assert incident.facts["nodes_hit"] == len(HIT)


TWO: dict[str, list[Signal]] = {
    "servers of other names": [*lost(HIT[:8], 100, "nfs", server="filer-3"), *lost(HIT[8:], 100, "nfs", server="filer-4")],
    "an alert on another server": [
        *lost(HIT, 100, "nfs", server="filer-3"),
        alert(110, "NFSServerDown", system="nfs", server="filer-9"),
    ],
    "file systems of other names": [
        *lost(HIT[:8], 100, "lustre", target="lfs1-OST0001"),
        *lost(HIT[8:], 100, "lustre", target="lfs2-OST0001"),
    ],
    "another system": [
        *lost(HIT, 100, "nfs", server="10.0.8.40"),
        alert(110, "WekaUnreachable", system="wekafs", storage_cluster="wk-7"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", TWO)
def test_storages_that_may_be_two_stay_two(name: str) -> None:
    assert len({i.root.key for i in told(TWO[name])}) == 2


def test_an_alert_is_one_more_that_does_not_reach_it() -> None:
    two = lost(HIT[:2], 100, "nfs", server="filer-3")
    assert told(two, until=500) == []
    (incident,) = told([*two, alert(400, "NFSServerDown", system="nfs", server="filer-3")], until=700)
    assert (incident.root.storage, incident.facts["nodes_hit"]) == ("filer-3", 2)
    assert incident.fault_at == at(100)


def test_what_only_monitoring_says_is_told_when_it_lasts_and_ends_with_it() -> None:
    one = alert(0, target="lfs1-OST0004", system="lustre")
    assert told([one], until=500) == []
    (incident,) = told([one], until=700)
    assert (incident.root.storage, incident.certainty) == ("lfs1-OST0004", Certainty.WEAK)
    assert incident.jobs == ()
    over = alert(900, target="lfs1-OST0004", system="lustre", cleared=True)
    (incident,) = told([one, over], until=2000)
    assert incident.closed_at is not None


def test_an_alert_that_nobody_resolves_holds_no_incident_open_that_all_nodes_are_out_of() -> None:
    back = [
        sign("node.storage", n, 900 + i, "nfs", server="filer-3", cleared=True) for i, n in enumerate(HIT)
    ]
    signals = [
        *lost(HIT, 100, "nfs", server="filer-3"),
        *back,
        alert(300, "NFSServerDown", system="nfs", server="filer-3"),
    ]
    (incident,) = told(signals, until=3000)
    assert incident.closed_at is not None


def borne(name: str) -> Signal:
    return alert(0, name, gone=False, system="ceph", storage_cluster="quark", target="osd.3")


def test_an_alert_long_after_it_is_back_opens_nothing_by_itself() -> None:
    back = [
        sign("node.storage", n, 400 + i, "nfs", server="filer-3", cleared=True) for i, n in enumerate(HIT)
    ]
    late = alert(2300, "NFSServerDown", system="nfs", server="filer-3")
    again = lost(HIT, 4500, "nfs", server="filer-3")
    found = told([*lost(HIT, 100, "nfs", server="filer-3"), *back, late, *again], until=5000)
    assert [i.fault_at for i in found] == [at(100), at(4500)]


QUIET: dict[str, list[Signal]] = {
    "one of a redundant storage's parts": [borne("CephOSDDown")],
    "it is slow": [alert(60 * i, "WekaLatencyHigh", gone=False, system="wekafs", storage_cluster=f"wk-{i}") for i in range(9)],
    "it fires and is over": [
        alert(400 * i, target="lfs1-OST0004", system="lustre", cleared=bool(i % 2)) for i in range(10)
    ],
    "a node's own": [alert(0, "NodeFilesystemDeviceError", host="n03", system="nfs", server="filer-3")],
    "a task of one node hangs meanwhile": [borne("CephHealthWarn"), *hung(["n03"], 30)],
    "tasks of a few nodes hang meanwhile": [borne("CephHealthWarn"), *hung(HIT[:4], 30)],
}  # fmt: skip


@SEEDS
@pytest.mark.parametrize("name", QUIET)
def test_what_a_storage_bears_on_a_busy_cluster_is_no_incident(name: str, seed: int | None) -> None:
    assert told(QUIET[name], until=6000, seed=seed) == []


FILER = link("leaf-9", "Ethernet12", node="filer-3", nic="e0a")
SECOND = link("leaf-8", "Ethernet12", node="filer-3", nic="e0b")
OSS = link("leaf-9", "Ethernet14", node="oss-4", nic="ib0")


@SEEDS
def test_the_port_of_what_serves_it_is_named_where_it_is_down_then(seed: int | None) -> None:
    signals = [port("leaf-9", "Ethernet12", 90), *lost(HIT, 100, "nfs", server="filer-3.example")]
    (incident,) = told(signals, FILER, seed=seed)
    assert incident.root.key == "storage/filer-3.example"
    assert (
        "filer-3 (link down at port Ethernet12 of leaf-9, the only port that is known of it)"
        in incident.reason
    )


def test_of_several_ports_it_is_named_without_that() -> None:
    signals = [port("leaf-9", "Ethernet12", 90), *lost(HIT, 100, "nfs", server="filer-3")]
    (incident,) = told(signals, FILER, SECOND)
    assert "filer-3 (link down at port Ethernet12 of leaf-9)" in incident.reason


def test_the_port_of_a_targets_server_is_known_by_the_alert_that_names_both() -> None:
    signals = [
        port("leaf-9", "Ethernet14", 90),
        *lost(HIT, 100, "lustre", target="lfs1-OST0004"),
        alert(200, host="oss-4", system="lustre", target="lfs1-OST0004"),
    ]
    (incident,) = told(signals, FILER, OSS)
    assert "oss-4 (link down at port Ethernet14 of leaf-9" in incident.reason


NOT_ITS = {
    "another host's port": [port("leaf-9", "Ethernet14", 90)],
    "long before": [port("leaf-9", "Ethernet12", -1200), port("leaf-9", "Ethernet12", -1150, cleared=True)],
    "after it was back": [port("leaf-9", "Ethernet12", 1400)],
    "only errors": [port("leaf-9", "Ethernet12", 90, subtype="errors")],
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_ITS)
def test_a_port_that_is_not_why_is_not_named(name: str) -> None:
    back = [
        sign("node.storage", n, 900 + i, "nfs", server="filer-3", cleared=True) for i, n in enumerate(HIT)
    ]
    seen = world(FILER, OSS)
    seen.play([*NOT_ITS[name], *lost(HIT, 100, "nfs", server="filer-3"), *back], 2500)
    (incident,) = [i for i in seen.incidents() if i.family == "storage_fault"]
    assert "Ethernet" not in incident.reason


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_daemons_of_one_ceph_on_hosts_of_their_own_name_what_nodes_hang_on(seed: int | None) -> None:
    """Its metadata server and its monitor each say that requests are slow; neither names the file system."""
    servers = [
        sign("node.storage", "ceph-mds1", 0, "ceph", severity=Severity.WARNING, system="ceph", count=85),
        sign(
            "node.storage",
            "ceph-mon1",
            25,
            "ceph",
            severity=Severity.WARNING,
            system="ceph",
            reason="MDS_SLOW_REQUEST",
        ),
    ]
    (incident,) = told([*servers, *hung(NODES[:24], 125)], seed=seed)
    assert incident.root.storage == "ceph"


def test_two_systems_that_complain_leave_open_which_one_nodes_hang_on() -> None:
    servers = [
        sign("node.storage", "ceph-mds1", 0, "ceph", severity=Severity.WARNING, system="ceph", count=85),
        sign("node.storage", "meta-7", 20, "beegfs", severity=Severity.WARNING, system="beegfs"),
    ]
    (incident,) = told([*servers, *hung(NODES[:24], 125)])
    assert incident.root.storage == "not named"
