"""Samples that a collector fetches from switches and other devices: the device, the interface, the leaf of its tree.

Telegraf's gnmi input has the device in the tag `source`, the interface in `name` and the subscription in `path`; its snmp input
has the device in `agent_host` and the interface in a column of the table, its modbus input the device in `name`. gnmic names the
interface by its list and key, `interface_name`. SONiC's tables of counters have it in the path (`COUNTERS/Ethernet112`), and so
have NX-OS' own trees (`sys/intf/phys-[eth1/49]/dbgDot3Stats`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from streams.ingest import levels, timestamps
from streams.ingest.logs import text
from streams.ingest.metrics.labels import bounded, without_port
from streams.ingest.records import MAX_LINE, Opened, RecordContext
from streams.model.record import LogLine, Sample
from streams.model.switch_descriptions import read_description

_INTERFACES = ("interface_name", "interface", "ifName", "ifDescr", "ifname", "port_name", "name")
"""Tags that name the interface, the surest first."""

_DESCRIPTIONS = ("node_desc", "node_description", "Node_Description", "NodeDesc", "node_name", "system_name")
_PORT_NUMBERS = ("port_label", "port_num", "port_number", "Port_Number", "PortNum", "portnum", "port")
_HOST_PORT = re.compile(r"(?P<host>[\w.-]{1,253}) (?P<nic>mlx\d_\d{1,3}|HCA-\d{1,3}|ib\w{1,14}|hca\d{1,3})")
"""The node description that the driver gives an HCA: host name and device."""
_OF_COLLECTOR = frozenset({"host", "path", "source", "subscription-name", "subscription_name"})
_IN_PATH = re.compile(
    r"(?:(?:COUNTERS|PORT_TABLE|interface)(?:/|\[name=|:)|phys-\[)(?P<interface>[A-Za-z][\w/.-]{1,62}?)(?:\]|/SAI|/PFC|$)"
)
_UP = frozenset({"up", "enabled", "enable", "active"})
_DOWN = frozenset(
    {"down", "lower_layer_down", "lower-layer-down", "disabled", "disable", "not_present", "dormant"}
)
_STATES = frozenset({"oper-status", "oper_status", "oper-state", "oper_state", "operstatus", "ifoperstatus"})
_ADMIN_STATES = frozenset({"admin-status", "admin_status"})
_MAX_DEPTH = 8
ALARM_SOURCE = "gnmi"
"""The program of lines that were alarms and events of a device's tree."""


@dataclass(frozen=True, slots=True)
class Device:
    """The device of samples. `labels` hold its interface under `interface`."""

    node: str
    labels: dict[str, str]


def of_tags(tags: dict[str, str]) -> Device | None:
    """The device in a metric's tags; None for metrics of the collector's own host."""
    if (subnet := _of_subnet(tags)) is not None:
        return subnet
    if "slave_id" in tags and tags.get("name"):
        # Telegraf's modbus input: `name` is the device, `host` the collector.
        return Device(tags["name"], bounded((name, value) for name, value in tags.items() if name != "host"))
    snmp = tags.get("agent_host")
    if snmp is None and ("source" not in tags or not {"path", "subscription-name"} & tags.keys()):
        return None
    by_snmp = tags.get("sysName") if snmp is not None else None
    node = tags.get("hostname") or by_snmp or tags.get("source") or snmp or ""
    labels = bounded((name, value) for name, value in tags.items() if name not in _OF_COLLECTOR)
    interface = next((tags[name] for name in _INTERFACES if tags.get(name)), None)
    if interface is None and (match := _IN_PATH.search(tags.get("path", ""))) is not None:
        interface = match["interface"]
    if interface is not None:
        labels["interface"] = interface
    return Device(without_port(node), labels)


def _of_subnet(tags: dict[str, str]) -> Device | None:
    """A port of an InfiniBand subnet by its node description, as a subnet manager's telemetry and collectors name it."""
    described = next((tags[name] for name in _DESCRIPTIONS if tags.get(name)), None)
    if described is None and "guid" in tags and "device" not in tags:
        described = tags.get("switch")  # infiniband_exporter (treydock): guid, port, switch
    port = next((tags[name] for name in _PORT_NUMBERS if tags.get(name)), None)
    if described is None or port is None:
        return None
    labels = bounded((name, value) for name, value in tags.items() if name not in _OF_COLLECTOR)
    if (of_host := _HOST_PORT.fullmatch(described.strip())) is not None:
        return Device(of_host["host"], labels | {"device": of_host["nic"], "port": port})
    switch = read_description(described)
    return Device(switch.name, labels | {"interface": switch.port(port)}) if " " not in switch.name else None


def with_admin_state(device: Device, leaves: Mapping[str, object]) -> Device:
    """The device with the label `admin`, where an update of an interface says whether somebody shut it."""
    for path, value in leaves.items():
        name = path.rpartition("/")[2].rpartition(":")[2].lower()
        if name in _ADMIN_STATES and isinstance(value, str) and value.lower() in _UP | _DOWN:
            return replace(device, labels=device.labels | {"admin": "up" if value.lower() in _UP else "down"})
    return device


def add_alarm(device: Device, leaves: Mapping[str, object], at: datetime | None, into: Opened) -> bool:
    """Add an alarm or event of the device as a line of it; False for leaves that are none.

    `{"resource": "PSU2", "severity": "MAJOR", "text": "…"}`: OpenConfig's alarms, and the events of SONiC and NVOS, which have
    the same leaves (openconfig-alarms.yang, sonic-event.yang, NVOS: Event Management).
    """
    named = {str(path).rpartition("/")[2].rpartition(":")[2]: value for path, value in leaves.items()}
    severity, said, about = named.get("severity"), named.get("text"), named.get("resource")
    if not isinstance(severity, str) or not isinstance(said, str) or not said:
        return False
    level = levels.of_value(severity.rpartition(":")[2])
    # A new subscription is sent all of them again.
    at = timestamps.any_form(named.get("time-created", named.get("time_created"))) or at
    line = said
    if isinstance(about, str) and about:
        # A word before a colon would begin somebody's sentence; a part's name has a number.
        line = f"{about}: {said}" if any(c.isdigit() for c in about) else f"[{about}] {said}"
    if not into.full():
        # No text that somebody may have quoted something in: it is all the device's own.
        line = line.replace("\n", " ")[:MAX_LINE]
        into.observations.append(LogLine(line, at, device.node, source=ALARM_SOURCE, level=level))
    return True


def add(
    device: Device,
    path: str,
    value: object,
    at: datetime | None,
    context: RecordContext,
    into: Opened,
    depth: int = _MAX_DEPTH,
) -> None:
    """Add one leaf, or all leaves of a tree, each under the last name of its path.

    A state in words becomes 1 for up and 0 for down, with the word in the label `state`.
    """
    if isinstance(value, dict):
        if add_event(device.node, path, value, at, context, into) or not depth:
            return
        if "severity" in value and add_alarm(device, value, at, into):
            return
        for name, inner in value.items():
            add(device, f"{path}/{name}", inner, at, context, into, depth - 1)
        return
    name = path.rpartition("/")[2].rpartition(":")[2]
    if not context.interest.metric(name) or into.full():
        return
    labels = device.labels
    if "interface" not in labels and (match := _IN_PATH.search(path)) is not None:
        labels = labels | {"interface": match["interface"]}
    if isinstance(value, str) and name.lower() in _STATES and value.lower() in _UP | _DOWN:
        labels, number = labels | {"state": value.lower()}, float(value.lower() in _UP)
    elif isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return
    else:
        try:
            number = float(value)
        except ValueError:
            return
    into.observations.append(Sample(name, number, at, device.node, labels))


def add_event(
    node: str | None,
    name: str,
    event: dict[str, object],
    at: datetime | None,
    context: RecordContext,
    into: Opened,
) -> bool:
    """Add a structured event of SONiC as the line its syslog has for it; False for any other event.

    `{"sonic-events-swss:pfc-storm": {"ifname": "Ethernet112", "queue_index": "3", …}}` (sonic-swss, event definitions).
    """
    if not name.rpartition("/")[2].startswith("sonic-events-swss:"):
        return False
    port = event.get("ifname")
    if name.endswith(":pfc-storm"):
        line = (
            f"PFC Watchdog detected PFC storm on port {port}, queue index {event.get('queue_index')}, "
            f"queue id {event.get('queue_id')} and port id {event.get('port_id')}"
        )
    elif name.endswith(":if-state"):
        line = f"Port {port} oper state set from {'up to down' if event.get('status') == 'down' else 'down to up'}"
    else:
        return True
    text.read(line, context, into, at=at, node=node, source="swss#orchagent")
    return True
