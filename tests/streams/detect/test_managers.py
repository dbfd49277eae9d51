"""What managers of fabrics log of other machines' ports: which port a line is about, never its own host."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streams.detect import Detector
from streams.model.record import RawRecord
from streams.model.signal import Signal, SignalState

AT = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
UFM = "Nov 21 07:13:13 ufm1 UFM: "
OPENSM = "Nov 21 07:13:13 ufm1 opensm[411]: "
ENDS = "(Switch: ib-leaf-05)54 - (Computer: gpu039 mlx5_5)1"
SWAPPED = "(Computer: gpu039 mlx5_5)1 - (Switch: ib-leaf-05)54"


def found(*lines: str) -> list[Signal]:
    """The signals of lines that come from one host, each in a record of its own."""
    detector = Detector("gpu-a")
    return [
        signal
        for number, line in enumerate(lines)
        for signal in detector.detect(
            RawRecord("raw.node-logs", 0, number, AT + timedelta(seconds=number), b"ufm1", line.encode())
        ).signals
    ]


@pytest.mark.parametrize(
    "message",
    [
        f"WARNING [Fabric Topology] Link [Switch: ib-leaf-05 / 54]: Link went down: {ENDS}",
        f"WARNING [Fabric Topology] Link [Computer: gpu039 mlx5_5 / 1]: Link went down: {ENDS}",
        f"WARNING [Fabric_Topology] Link: Link went down: {SWAPPED}",
        f"WARNING Link is down: {ENDS}",
        "WARNING [Hardware] Link went down: (Switch:ib-leaf-05:54)-(Computer:gpu039:HCA-6 mlx5_5)",
        "WARNING [Hardware] Link went down: (Switch: 'ib-leaf-05') port 54 - (Computer: 'gpu039 mlx5_5') port 1",
        "WARNING [Hardware] Link [gpu039 mlx5_5/1 <-> ib-leaf-05/54]: Link is down",
        'WARNING [Hardware] Link went down: "gpu039 mlx5_5" port 1 <-> "MF0;ib-leaf-05:MQM9700/U1" port 54',
        "WARNING [Hardware] Link went down: ib-leaf-05 port 54 - gpu039 mlx5_5 port 1",
        "WARNING [Fabric_Topology] Link [Source b8599f0300ab12cd_54 TO Dest 0c42a10300cd34ef_1]: Link went down: "
        "(Switch: ib-leaf-05)b8599f0300ab12cd:54 - (Computer: gpu039 mlx5_5)0c42a10300cd34ef:1",
    ],
)
def test_a_line_with_both_ends_is_about_the_switchs_port_and_what_is_attached_to_it(message: str) -> None:
    (signal,) = found(UFM + message)
    assert (signal.entity.node, signal.entity.switch, signal.entity.port) == (None, "ib-leaf-05", "54")
    assert (signal.attributes["peer_node"], signal.attributes["peer_nic"]) == ("gpu039", "mlx5_5")
    assert signal.attributes["manager"] == "ufm1"


def test_a_link_between_switches_has_the_far_switch_with_its_port() -> None:
    (signal,) = found(
        UFM + "WARNING [Fabric Topology] Link went down: (Switch: ib-leaf-05)54 - (Switch: ib-spine-2)7"
    )
    assert (signal.entity.switch, signal.entity.port) == ("ib-leaf-05", "54")
    assert (signal.attributes["peer_switch"], signal.attributes["peer_port"]) == ("ib-spine-2", "7")


def test_a_line_that_names_a_hosts_adapter_alone_is_about_that_adapter() -> None:
    (signal,) = found(
        UFM + "WARNING [Hardware] IBPort [default / Computer: gpu043 mlx5_2 / 1]: Link went down"
    )
    assert (signal.entity.node, signal.entity.nic, signal.entity.switch) == ("gpu043", "mlx5_2", None)


def test_a_link_that_is_up_again_ends_what_its_manager_said_whichever_end_comes_first() -> None:
    down, up = found(
        f"{UFM}WARNING [Fabric Topology] Link went down: {ENDS}",
        f"{UFM}INFO [Fabric Topology] Link is up: {SWAPPED}",
    )
    assert up.state is SignalState.CLEARED
    assert up.entity == down.entity


@pytest.mark.parametrize(
    "line",
    [
        f"{OPENSM}log_trap_info: Received Generic Notice type:1 num:128 (Link state change) Producer:2 (Switch) from LID:44",
        f"{OPENSM}log_trap_info: Received Generic Notice type:1 num:129 (Local Link Integrity) Producer:2 (Switch) from LID:44",
        f"{OPENSM}Reporting Generic Notice type:3 num:65 (GID out of service) from LID:1 GID:fe80::c42:a103:cd:34ef",
        f"{OPENSM}osm_spst_rcv_process: Switch 0xb8599f0300ab12cd port 12 changed state from ACTIVE to DOWN",
        f"{OPENSM}sm_mad_ctrl_send_err_cb: ERR 3113: MAD completed in error (IB_TIMEOUT): SubnGet(NodeInfo)",
        f"{UFM}WARNING [Hardware] Link [Source 0x0c42a10300cd34ef_1 TO Dest 0xb8599f0300ab12cd_17]: Link went down",
        f"{UFM}WARNING [Hardware] Port 17 went down",
        f"{UFM}CRITICAL [Communication] Node is down",
        f"{UFM}WARNING [Hardware] Symbol error rate exceeds normal threshold on GUID 0xb8599f0300ab12cd port 3",
        "Nov 21 07:13:13 ctl1 ndfc[7]: %ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/12 is down (Link failure)",
    ],
)
def test_a_line_without_a_name_is_about_no_place(line: str) -> None:
    (signal,) = found(line)
    entity = signal.entity
    assert (entity.node, entity.nic, entity.switch, entity.port) == (None, None, None, None)


def test_a_number_counts_once_a_line_has_named_the_device_with_it() -> None:
    pair = "(Switch: ib-leaf-05)b8599f0300ab12cd:54 - (Computer: gpu039 mlx5_5)0c42a10300cd34ef:1"
    *_, by_guid, by_gid, by_link = found(
        f"{UFM}WARNING [Fabric_Topology] Link went down: {pair}",
        f"{OPENSM}osm_spst_rcv_process: Switch 0xb8599f0300ab12cd port 12 changed state from ACTIVE to DOWN",
        f"{OPENSM}Reporting Generic Notice type:3 num:65 (GID out of service) from LID:1 GID:fe80::c42:a103:cd:34ef",
        f"{UFM}WARNING [Hardware] Link [Source 0x0c42a10300cd34ef_1 TO Dest 0xb8599f0300ab12cd_17]: Link went down",
    )
    assert (by_guid.entity.switch, by_guid.entity.port) == ("ib-leaf-05", "12")
    assert (by_gid.entity.node, by_gid.entity.nic) == ("gpu039", "mlx5_5")
    assert (by_link.entity.switch, by_link.entity.port) == ("ib-leaf-05", "17")
    assert by_link.attributes["peer_node"] == "gpu039"


def test_who_reports_a_trap_is_not_who_it_is_about() -> None:
    """LID 1 is the manager's own in a notice that it passes on; the port is in the GID."""
    *_, notice = found(
        f"{OPENSM}drop_mgr_remove_port: Removed port with GUID:0x0c42a10300cd0001 LID range [1, 1] of node:ufm1 mlx5_0",
        f"{OPENSM}Reporting Generic Notice type:3 num:65 (GID out of service) from LID:1 GID:fe80::c42:a103:cd:34ef",
    )
    assert notice.entity.node is None


@pytest.mark.parametrize(
    ("line", "switch", "port"),
    [
        (
            "cvp[9]: leaf-3: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet5/1, changed state to down",
            "leaf-3",
            "Ethernet5/1",
        ),
        (
            "DCNM: leaf-3 %ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/12 is down (Link failure)",
            "leaf-3",
            "Ethernet1/12",
        ),
        (
            "ndfc: %ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/12 is down (Link failure) on switch leaf-3",
            "leaf-3",
            "Ethernet1/12",
        ),
    ],
)
def test_what_a_controller_passes_on_is_about_the_switch_that_it_names(
    line: str, switch: str, port: str
) -> None:
    (signal,) = found(f"Nov 21 07:13:13 ctl1 {line}")
    assert (signal.entity.switch, signal.entity.port) == (switch, port)


@pytest.mark.parametrize(
    ("line", "nic"),
    [
        ("kernel: mlx5_core 0000:1b:00.0 ib0: Link down", "ib0"),
        ("rdma: link mlx5_2/1 state DOWN physical_state POLLING netdev ib2", "mlx5_2"),
    ],
)
def test_a_managers_own_link_is_reported_by_its_kernel_and_its_own_tools(line: str, nic: str) -> None:
    (signal,) = (s for s in found(f"Nov 21 07:13:13 ufm1 {line}") if s.kind != "fabric.nic_names")
    assert (signal.entity.node, signal.entity.nic) == ("ufm1", nic)
    assert "manager" not in signal.attributes
