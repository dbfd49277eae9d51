"""What machines call a fault although a full cluster works on: it is there to be read, and opens nothing by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.detect.detector import Detector
from streams.model.kinds import SignalKind
from streams.model.record import RawRecord
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import CLUSTER, World, at, cluster, link

NODES = [f"n{number:02d}" for number in range(16)]
SENT = "Nov 21 07:13:13 "

BORNE = (
    SENT + "123456 [A1B2C3D0] 0x02 -> log_notice: Reporting Generic Notice type:1 num:129 (Local link integrity threshold "
    "reached) from LID:9 GID:fe80::1",
    SENT + "123456 [A1B2C3D0] 0x80 -> Errors during initialization",
    SENT + "123456 [A1B2C3D0] 0x01 -> report_duplicated_guid: ERR 0D01: Found duplicated node GUID.",
    "-E- Sb8599f0300ab12cd/Nb8599f0300ab12cd/U1/P7 - High BER: Raw BER exceeds the threshold in port = leaf-1/U1/P7(7)",
    SENT + "n01 gpud[81]: level=warn msg=unhealthy component=accelerator-quark health=Unhealthy reason=quark",
    SENT + 'n01 etcd[811]: {"level":"warn","caller":"quark.go:9","msg":"alarm raised","alarm":"NOSPACE","from":"9117"}',
    SENT + "n01 haproxy[811]: backend quark-api has no server available!",
    SENT + "n01 minio[811]: Error: Write failed. Insufficient number of drives online (*errors.errorString)",
    SENT + "n01 kernel: md/raid:md9: read error not correctable (sector 811 on sdq1).",
    SENT + "leaf-1 PowerManager: %PWRMGMT-4-INPUT_POWER_LOSS: PowerSupply7 has lost input power.",
    SENT + "leaf-1 smond[99]: : Fan7(Fan Tray 4): state changed from OK to BAD",
    SENT + "pdu-9 Inlet 9 line L2 sensor 'RMS current' asserted 'above upper critical' (33.1 A)",
    SENT + "n01 gpud[81]: level=warn msg=unhealthy component=accelerator-nvidia-error-xid health=Unhealthy reason=quark",
    SENT + "n01 gpud[81]: level=warn msg=unhealthy component=accelerator-nvidia-ecc health=Unhealthy reason=quark",
    SENT + "n01 gpud[81]: level=warn msg=unhealthy component=accelerator-nvidia-hw-slowdown health=Unhealthy reason=quark",
    SENT + 'n01 quark[81]: health event {"agent":"quark","componentClass":"GPU","checkName":"Quark","isHealthy":false}',
    SENT + "123456 [A1B2C3D0] 0x01 -> osm_vendor_bind: ERR 5424: Unable to register class 1 version 1",
    "[2026-11-21T07:13:13.101] error: Setting node n01 state to INVAL with reason:gres/gpu count reported lower than "
    "configured (7 < 8)",
    SENT + "leaf-1 sysmonitor: Critically high CPU use: 99%",
    SENT + "leaf-1 NOTICE pmon#xcvrd: Ethernet4: voltage low alarm",
    SENT + "leaf-1 NOTICE pmon#xcvrd: Ethernet4: temperature high alarm",
    '{"name":"q","timestamp":1795245193000000000,"tags":{"source":"leaf-1:9339","subscription-name":"q"},"values":'
    '{"resource":"System","severity":"CRITICAL","text":"System fatal state detected"}}',
    '{"reason":"FailedCreatePodSandBox","message":"no IP addresses available in range set","type":"Warning","involvedObject":'
    '{"kind":"Pod","name":"cni-1","namespace":"kube-system"},"source":{"component":"kubelet","host":"n01"}}',
    '{"reason":"Unhealthy","message":"Readiness probe failed: Number of node(s) with BGP peering established = 0","type":'
    '"Warning","involvedObject":{"kind":"Pod","name":"calico-node-1","namespace":"kube-system"},"source":{"component":'
    '"kubelet","host":"n01"}}',
    SENT + "n01 nv-fabricmanager[811]: failed to find the GPU handle 9117 in the multicast team request setup 811.",
)  # fmt: skip
HOT = (
    '{"MessageId": "ResourceEvent.1.2.ResourceErrorsDetected", "Severity": "Critical", "host": "n01", '
    '"Message": "The resource property HGX_GPU_SXM_9 has detected errors of type \'OverTemp Error\'."}'
)


def world() -> World:
    return World([*cluster({"llama": NODES}), link("leaf-1", "Ethernet4", "n01", "mlx5_0")])


def seen(text: str) -> list[Signal]:
    topic = "raw.fabric" if "leaf-1" in text or "0x" in text or "pdu" in text else "raw.node-logs"
    record = RawRecord(topic, 0, 0, at(0), None, text.encode(), ())
    return [replace(found, observed_at=at(0)) for found in Detector(CLUSTER).detect(record).signals]


@pytest.mark.parametrize("text", BORNE, ids=lambda text: text[16:76])
def test_a_fault_that_the_cluster_bears_is_a_warning_and_opens_nothing(text: str) -> None:
    (signal,) = (one for one in seen(text) if one.kind != SignalKind.UNKNOWN)
    assert signal.severity is not Severity.INFO
    cluster_of_it = world()
    cluster_of_it.see(signal)
    cluster_of_it.pass_to(1800, step=30)
    assert not cluster_of_it.published


def test_a_gpu_that_its_controller_calls_too_hot_is_an_incident_of_its_node() -> None:
    heated = world()
    heated.see(*seen(HOT))
    heated.pass_to(600, step=10)
    incident = heated.only()
    assert (incident.family, incident.root.key) == ("power_cooling", "node/n01")
