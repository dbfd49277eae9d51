"""Rows without a hint: words looked for only in lines that are kept for another reason, and in which nothing else was found.

That each finds its samples and passes over its look-alikes: `tests/faultline/lint`.
"""

from __future__ import annotations

import pytest

from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting
from streams.detect import Detector
from streams.detect.matching.log_patterns import PatternRow, PatternTable, load_sheet, sheet_names
from streams.model.clock import from_millis
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import SignalKind
from streams.model.signal import Severity
from tests.streams.detect.lines import record, signals

UNHINTED = {
    f"{name}/{row.id}": row for name in sheet_names() for row in load_sheet(name).rows if row.hint is None
}
SWITCH_PSU = "Nov 21 07:13:13.1 leaf-9 {} pmon#psud: Power absence warning{}: PSU 2 is out of power."


def test_a_row_without_a_hint_adds_nothing_to_what_every_byte_is_matched_against() -> None:
    table = PatternTable.load("switch_vendors")
    assert len(table.hints) < len(table.unhinted)
    line = "the psu daemon of leaf-9: Power absence warning: PSU 2"
    assert not Detector("c1").wants(line.encode())
    assert not signals(line)


def test_what_another_row_knows_is_not_looked_up_again() -> None:
    """Both sheets of switches have words that open this line."""
    line = "Nov 21 07:13:13 spine-9 alarmd[411]: Alarm set: FPC color=RED, class=CHASSIS, reason=FPC 0 PEM 7 Not Powered"
    assert PatternTable.load("switch_vendors").find(line, 0)
    (signal,) = signals(line)
    assert (signal.kind, signal.attributes["unit"]) == (SignalKind.NODE_POWER, 7)


def test_a_known_error_is_no_unknown_one_besides() -> None:
    (signal,) = signals(SWITCH_PSU.format("WARNING", ""))
    assert (signal.severity, signal.attributes["subtype"]) == (Severity.WARNING, "switch_psu")


PLACES = {
    "Nov 21 07:13:13 os10-9 dn_ifm[811]: Node.1-Unit.1:PRI [event], Dell (OS10) %IFM_OSTATE_DN: Interface operational state "
    "is down :ethernet1/1/17": "port/os10-9/ethernet1/1/17",
    "Nov 21 2026 07:13:13 ce-9 %%01IFPDT/4/IF_STATE(l)[17]:Interface 100GE1/0/17 has turned into DOWN state.":
        "port/ce-9/100GE1/0/17",
    "Nov 21 07:13:13 leaf-9 Bgp: %BGP-3-NOTIFICATION: sent to neighbor 10.9.9.9 (VRF default AS 65009) 4/0 (Hold Timer "
    "Expired Error/None) 0 bytes": "switch/leaf-9",
    "Nov 21 07:13:13 leaf-9 bgpd[811]: %NOTIFICATION: sent to neighbor swp9 4/0 (Hold Timer Expired) 0 "
    "bytes": "port/leaf-9/swp9",
    "11/21/2026 07:13:13;0001;Server@pbs-9;Node;gpu-9;node down: communication closed": "node/gpu-9",
    "Nov 21 07:13:13 gpu-9 kernel: AMD-Vi: Completion-Wait loop timed out": "node/gpu-9",
    "Nov 21 07:13:13 filer-9 [filer-9-01: env_mgr: monitor.chassisFan.degraded:alert]: a quark fan is "
    "degraded": "node/filer-9",
    "Nov 21 07:13:13 gpu-7-xcc XCC: FQXSPCA0017M: Sensor GPU 9 Temp has transitioned to critical from a less severe state.":
        "node/gpu-7",
    'level=info msg="TFJob=quark, ReplicaType=PS expected=3, running=2, failed=1" job=ml.quark uid=1a2b': "job/TFJob/ml/quark",
}  # fmt: skip


@pytest.mark.parametrize(("line", "place"), PLACES.items(), ids=lambda text: text[:60])
def test_the_place_is_what_the_line_names(line: str, place: str) -> None:
    (signal,) = signals(line)
    assert signal.severity is not Severity.INFO
    assert signal.entity.key == place


def test_an_operator_that_counts_the_same_failures_again_says_nothing_new() -> None:
    line = (
        'level=info msg="TFJob=quark, ReplicaType=PS expected=3, running=2, failed={}" job=ml.quark uid=1a2b'
    )
    detector = Detector("c1")
    counted = (1, 1, 2, 0, 2)
    found = [detector.detect(record(line.format(n), offset=at)).signals for at, n in enumerate(counted)]
    assert [len(one) for one in found] == [1, 0, 1, 0, 0]


BACKGROUND = (
    # Who closes a session says so, a person or a restart.
    "Nov 21 07:13:13 leaf-9 Bgp: %BGP-3-NOTIFICATION: received from neighbor 10.9.9.9 (VRF default AS 65009) 6/2 "
    "(Cease/administrative shutdown) 0 bytes",
    "Nov 21 07:13:13 leaf-9 bgpd[811]: %ADJCHANGE: neighbor swp9(spine-9) in vrf default Down Neighbor deleted",
    "Nov 21 07:13:13 leaf-9 Bgp: %BGP-5-ADJCHANGE: peer 10.9.9.9 (VRF default AS 65009) old state Established event Stop new "
    "state Idle",
    # A compaction, a pod that is tried again, a cloud that is full.
    '{"level":"warn","ts":"2026-11-21T07:13:13.101Z","caller":"wal/wal.go:9","msg":"slow fdatasync","took":"2.1s"}',
    'Nov 21 07:13:13 gpu-9 containerd[81]: time="2026-11-21T07:13:13.1Z" level=error msg="RunPodSandbox for '
    '&PodSandboxMetadata{Name:quark-0,Uid:1a,Namespace:ml,Attempt:0,} failed, error" error="rpc error: '
    'failed to setup network"',
    '{"level":"ERROR","time":"2026-11-21T07:13:13.1Z","logger":"controller","message":"failed launching nodeclaim"}',
    '{"level":"warn","ts":"2026-11-21T07:13:13.101Z","caller":"etcdserver/quark.go:9","msg":"apply '
    'request took too long","took":"211ms"}',
    ""
    '{"level":"info","ts":"2026-11-21T07:13:13.101Z","caller":"zapgrpc/quark.go:9",'
    '"msg":"raft.node: 8211 lost leader 9117 at term 7"}',
    '{"level":"info","ts":"2026-11-21T07:13:13.101Z","caller":"v3rpc/quark.go:9","msg":"finished '
    'defragmenting","size":"811 MB"}',
    '{"level":"info","ts":"2026-11-21T07:13:13.101Z","caller":"mvcc/quark.go:9","msg":"finished '
    'scheduled compaction","took":"1.1s"}',
    # A server that somebody takes out of an address, and one that fails where others are left.
    "Nov 21 07:13:13 lb-9 haproxy[811]: Server quark-api/cp-9 is going DOWN for maintenance. 0 active "
    "and 0 backup servers left. "
    "0 sessions active, 0 requeued, 0 remaining in queue.",
    "Nov 21 07:13:13 lb-9 haproxy[811]: Server quark-api/cp-9 is DOWN, reason: Layer4 connection "
    'problem, info: "Connection refused", '
    "check duration: 0ms. 2 active and 0 backup servers left. 9 sessions active, 0 requeued, 0 remaining in queue.",
    "Nov 21 07:13:13 lb-9 haproxy[811]: Server quark-api/cp-9 is UP, reason: Layer7 check passed, code: "
    "200, check duration: 9ms. "
    "1 active and 0 backup servers online. 0 sessions requeued, 0 total in queue.",
    # A drive of many, an agent's component that is well, and a sweep of a subnet that found what it knew.
    '{"level":"INFO","time":"2026-11-21T07:13:13.101Z","message":"Healing of drive /data9 is finished","healed":917}',
    '{"level":"info","msg":"checked","component":"accelerator-quark","health":"Healthy","reason":"all 8 '
    'ports are active","host":"gpu-9"}',
    ""
    '{"level":"warn","msg":"checked","component":"accelerator-quark","health":"Initializing","reason":"not known yet"}',
    "Nov 21 07:13:13 123456 [A1B2C3D0] 0x80 -> SUBNET UP",
    "Nov 21 07:13:13 123456 [A1B2C3D0] 0x02 -> log_notice: Reporting Generic Notice type:3 num:66 (New "
    "mcast group created) from LID:9 "
    "GID:ff12::1",
    "Nov 21 07:13:13 123456 [A1B2C3D0] 0x02 -> log_notice: Reporting Generic Notice type:4 num:144 "
    "(Local changes, CapabilityMask, "
    "LinkSpeed or NodeDescription changed) from LID:9 GID:fe80::1",
    "[ 99.1] cxi_ss1 0000:18:00.0: cxi7[hsn7] CXI_EVENT_LINK_UP",
    "[ 99.1] hfi1 0000:18:00.0: hfi1_7: 8051: host request done",
    "Nov 21 07:13:13 oss-9 kernel: LDISKFS-fs (dm-9): mounted filesystem with ordered data mode. Opts: "
    "errors=remount-ro",
    "[ 99.1] md/raid:md9: read error corrected (8 sectors at 811 on sdq1)",
    "(3) Nov21 07:13:13 Worker9 [SessionLocalFile (open)] >> Failed to open chunkFile: 7-811-9. SysErr: "
    "No such file or directory",
    # The way back, where nothing was wrong before.
    "Nov 21 07:13:13 leaf-9 PowerManager: %PWRMGMT-5-INPUT_POWER_RESTORED: PowerSupply7 input power has been restored.",
    "Nov 21 07:13:13 leaf-9 smond[99]: : PSU2(Power supply 2): state changed from BAD to OK",
    "Nov 21 07:13:13 rk2-bmc phosphor-leak-monitor[9]: Leakage_9_Tray: state changed from LEAK to OK",
    SWITCH_PSU.format("NOTICE", " cleared"),
    "Nov 21 07:13:13 leaf-9 smond[99]: : /usr/sbin/smond : : Temp7(Board sensor near quark): state "
    "changed from HIGH to OK",
    "Nov 21 07:13:13 spine-9 craftd[411]: Major alarm cleared, Fan Tray 7 Failure",
    "(2) Nov21 07:13:13 XNodeSync [InternodeSyncer] >> Target state changed: Target ID: 9; Old state: "
    "Offline; New state: Good",
    "Nov 21 07:13:13 ups-9 upsmon[811]: UPS quark@localhost on line power",
    "[ 99.1] megaraid_sas 0000:18:00.0: 4411 (731s/0x0001/INFO) - VD 00/7 is now OPTIMAL",
    # What a license, an unused port or a person is about.
    "Nov 21 07:13:13 leaf-9 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet7/1, changed "
    "state to administratively down",
    "what to do when backend quark-api has no server available!",
    "Nov 21 07:13:13 spine-9 alarmd[411]: Alarm set: License color=YELLOW, class=CHASSIS, reason=License "
    "for quark expired",
    "Nov 21 07:13:13 spine-9 alarmd[411]: Alarm set: Mgmt Eth color=RED, class=CHASSIS, "
    "reason=Management Ethernet Link Down",
    "Nov 21 07:13:13 spine-9 chassisd[411]: CHASSISD_FRU_OFFLINE_NOTICE: Taking FPC 7 offline: Offlined by cli command",
    # Other programs, and people.
    "Nov 21 07:13:13 gpu-9 quark[9]: part of the existing bootstrap client certificate in /etc/quark.conf is expired",
    "Nov 21 07:13:13 gpu-9 quark[9]: VD 00/7 is now OFFLINE",
    "did you see %BGP-3-NOTIFICATION: sent to neighbor 10.9.9.9 (VRF default AS 65009) 4/0 (Hold Timer "
    "Expired) last night?",
    "- AMD-Vi: Completion-Wait loop timed out",
    '"Alarm set: Fan color=RED, class=CHASSIS, reason=Fan Tray 7 Failure" is what Junos prints',
)


@pytest.mark.parametrize("line", BACKGROUND, ids=lambda text: text[:60])
def test_what_a_busy_healthy_cluster_prints_is_information_at_most(line: str) -> None:
    assert all(signal.severity is Severity.INFO for signal in signals(line))


CAUSES = {
    "storage_servers/gpfs_lost": Certainty.WEAK,
    "storage_servers/beegfs_offline": Certainty.WEAK,
    "storage_servers/beegfs_io": Certainty.WEAK,
    "storage_servers/ceph_device": Certainty.WEAK,
    "storage/dm_corruption": Certainty.WEAK,
    "storage/md_unreadable": Certainty.WEAK,
    "storage/megaraid_event": Certainty.LIKELY,
    "storage/zfs_suspended": Certainty.LIKELY,
    "switch_vendors/fan": Certainty.WEAK,
    "switch_vendors/heat": Certainty.WEAK,
}
"""Rows that an incident may come of, at most this certain: a RAID volume or pool that is gone, a disk that gives back something
else than was written, or nothing, a storage that is not reached, and heat of a device that lasts and is not alone. All others
are context."""


def _role_of(row: PatternRow, subtype: str) -> tuple[str, Certainty]:
    at = from_millis(0)
    sighting = Sighting(
        "s", row.kind, Entity("c1", node="n1"), at, at, at, row.severity, True, {"subtype": subtype}
    )
    return families().role(sighting), families().certainty(sighting)


def test_none_of_them_is_decisive_and_few_are_causes() -> None:
    causes = {}
    for name, row in UNHINTED.items():
        if row.state == "cleared" or not row.kind.startswith(("node.", "gpu.")):
            continue
        roles = [_role_of(row, one) for one in (str(row.sets["subtype"]), *row.subtypes)]
        if found := [certainty for role, certainty in roles if role == "cause"]:
            causes[name] = max(found, key=list(Certainty).index)
    assert causes == CAUSES
