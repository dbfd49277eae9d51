"""One message in every wrapping that shippers give it: what must come out is the same whatever the wrapping."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import orjson

ISO = "2026-11-21T07:13:15.123456Z"
SECONDS = 1795245195.123456
NANOS = "1795245195123456000"
HOST = "gpu-a07"

Wrapping = Callable[[str], bytes]


def _json(value: Any) -> bytes:
    return orjson.dumps(value)


def _text(value: Any) -> str:
    return _json(value).decode()


def _go(value: Any) -> bytes:
    """As Go's encoder writes it, with what HTML would misread escaped."""
    raw = _json(value)
    for mark in "<>&":
        raw = raw.replace(mark.encode(), f"\\u{ord(mark):04x}".encode())
    return raw


def _journal(message: Any) -> dict[str, Any]:
    return {
        "__CURSOR": "s=0a;i=1",
        "__REALTIME_TIMESTAMP": "1795245195123456",
        "__MONOTONIC_TIMESTAMP": "123456",
        "_BOOT_ID": "5f",
        "_TRANSPORT": "kernel",
        "PRIORITY": "4",
        "SYSLOG_FACILITY": "0",
        "SYSLOG_IDENTIFIER": "kernel",
        "_HOSTNAME": HOST,
        "MESSAGE": message,
    }


def _beat(message: str) -> dict[str, Any]:
    return {
        "@timestamp": ISO,
        "@metadata": {"beat": "filebeat", "type": "_doc", "version": "8.15.3"},
        "log": {"offset": 88123, "file": {"path": "/var/log/kern.log"}},
        "message": f"Nov 21 07:13:15 {HOST} kernel: [12345.678901] {message}",
        "input": {"type": "filestream"},
        "ecs": {"version": "8.0.0"},
        "host": {"name": HOST},
        "agent": {"type": "filebeat", "name": HOST},
    }


def _event(data: Any, **more: Any) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "type": "log",
        "source": "/relay",
        "id": "1",
        "time": ISO,
        "data": data,
    } | more


KERNEL: dict[str, Wrapping] = {
    "bare": lambda m: m.encode(),
    "rfc 3164": lambda m: f"<4>Nov 21 07:13:15 {HOST} kernel: [12345.678901] {m}".encode(),
    "rfc 5424": lambda m: f'<4>1 {ISO} {HOST} kernel - - [meta a="x]y" b="\\"z\\""] {m}'.encode(),
    "octet counted": lambda m: f"120 <4>1 {ISO} {HOST} kernel - - - {m}".encode(),
    "kmsg": lambda m: f"4,1234,6781741548779,-;{m}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0".encode(),
    "dmesg": lambda m: f"[12345.678901] {m}".encode(),
    "dmesg -T": lambda m: f"[Sat Nov 21 07:13:15 2026] {m}".encode(),
    "dmesg -x": lambda m: f"kern  :warn  : [12345.678901] {m}".encode(),
    "dmesg -xT": lambda m: f"kern  :err   : [Sat Nov 21 07:13:15 2026] {m}".encode(),
    "dmesg -d": lambda m: f"[12345.678901 <    0.000844>] {m}".encode(),
    "dmesg -e": lambda m: f"[  +0.000844] {m}".encode(),
    "dmesg -e, a new minute": lambda m: f"[Nov21 07:13] {m}".encode(),
    "grep": lambda m: f"messages-20261121:88:Nov 21 07:13:15 {HOST} kernel: {m}".encode(),
    "dmesg iso": lambda m: f"2026-11-21T07:13:15,123456+00:00 {m}".encode(),
    "talos": lambda m: f"10.5.0.2: kern: warning: [{ISO}]: {m}".encode(),
    "journalctl": lambda m: f"Nov 21 07:13:15 {HOST} kernel: {m}".encode(),
    "journalctl -o json": lambda m: _json(_journal(m)),
    "journal bytes": lambda m: _json(_journal(list(m.encode()))),
    "journal repeated": lambda m: _json(_journal([m]) | {"SYSLOG_IDENTIFIER": ["kernel", "x"]}),
    "fluent bit kmsg": lambda m: _json(
        {"@timestamp": SECONDS, "priority": 4, "sequence": 1, "sec": 12345, "usec": 678901, "msg": m}
    ),
    "fluent bit systemd": lambda m: _json(
        {"@timestamp": SECONDS, "MESSAGE": m, "_HOSTNAME": HOST, "_TRANSPORT": "kernel", "PRIORITY": "4"}
    ),
    "fluent bit systemd lower": lambda m: _json(
        {"@timestamp": ISO, "message": m, "hostname": HOST, "transport": "kernel", "priority": "4"}
    ),
    "fluentd": lambda m: _json(
        {"time": ISO, "host": HOST, "ident": "kernel", "message": m, "tag": "system.kern"}
    ),
    "fluentd forwarded": lambda m: _json(
        [{"@timestamp": ISO, "host": HOST, "ident": "kernel", "message": m}]
    ),
    "vector journald": lambda m: _json(
        {
            "message": m,
            "host": HOST,
            "timestamp": ISO,
            "source_type": "journald",
            "_TRANSPORT": "kernel",
            "SYSLOG_IDENTIFIER": "kernel",
        }
    ),
    "vector syslog": lambda m: _json(
        {
            "appname": "kernel",
            "facility": "kern",
            "hostname": HOST,
            "host": "relay-1",
            "message": m,
            "source_type": "syslog",
            "timestamp": ISO,
        }
    ),
    "vector file": lambda m: _json(
        {
            "file": "/var/log/kern.log",
            "host": HOST,
            "message": f"{ISO} {HOST} kernel: {m}",
            "source_type": "file",
        }
    ),
    "vector native": lambda m: _json(
        {"log": {"message": m, "host": HOST, "timestamp": ISO, "appname": "kernel"}}
    ),
    "filebeat": lambda m: _json(_beat(m)),
    "rsyslog": lambda m: _json(
        {
            "@timestamp": ISO,
            "host": HOST,
            "severity": "warning",
            "facility": "kern",
            "tag": "kernel:",
            "msg": f" {m}",
        }
    ),
    "rsyslog by name": lambda m: _json(
        {"timestamp": ISO, "hostname": HOST, "programname": "kernel", "syslogtag": "kernel:", "message": m}
    ),
    "rsyslog raw": lambda m: _json(
        {"rawmsg": f"<4>Nov 21 07:13:15 {HOST} kernel: {m}", "fromhost-ip": "10.0.0.5"}
    ),
    "gelf": lambda m: _json(
        {
            "version": "1.1",
            "host": HOST,
            "short_message": m,
            "timestamp": SECONDS,
            "level": 4,
            "_facility": "kern",
        }
    ),
    "loki": lambda m: _json(
        {"streams": [{"stream": {"host": HOST, "transport": "kernel"}, "values": [[NANOS, m]]}]}
    ),
    "elastic hit": lambda m: _json({"_index": "logs", "_id": "a", "_source": _beat(m)}),
    "elastic bulk": lambda m: b'{"index":{"_index":"logs"}}\n' + _json(_beat(m)) + b"\n",
    "cloudevent": lambda m: _json(_event(_journal(m))),
    "cloudevent text": lambda m: _json(
        _event(f"Nov 21 07:13:15 {HOST} kernel: {m}", datacontenttype="text/plain")
    ),
    "cloudevent base64": lambda m: _json(
        _event(None, data_base64=base64.b64encode(_json(_journal(m))).decode())
    ),
    "docker": lambda m: _go({"log": f"[12345.678901] {m}\n", "stream": "stdout", "time": ISO}),
    "cri": lambda m: f"{ISO} stdout F [12345.678901] {m}".encode(),
    "json in a log": lambda m: _json({"log": _text(_journal(m)) + "\n", "stream": "stdout", "time": ISO}),
    "json in json in a log": lambda m: _json({"message": _text({"log": _text({"level": "warn", "msg": m})})}),
    "json behind cri": lambda m: f"{ISO} stdout F ".encode() + _json(_journal(m)),
    "json behind syslog": lambda m: f"<4>Nov 21 07:13:15 {HOST} kernel: @cee: ".encode() + _json({"msg": m}),
    "utf-16": lambda m: f"Nov 21 07:13:15 {HOST} kernel: {m}\r\n".encode("utf-16"),
    "utf-8 with a mark": lambda m: f"\ufeffNov 21 07:13:15 {HOST} kernel: {m}".encode(),
    "carriage returns": lambda m: f"[1.5] usb 1-1: new device\r\n[2.5] {m}\r\n".encode(),
    "zeroes of a crash": lambda m: b"\x00" * 200 + f"Nov 21 07:13:15 {HOST} kernel: {m}".encode(),
    "colours": lambda m: f"\x1b[32m[12345.678901] \x1b[0m\x1b[33m{m}\x1b[0m".encode(),
    "bytes that are not utf-8": lambda m: b'{"host":"gpu-a07","x":"\xff\xfe","MESSAGE":' + _json(m) + b"}",
    "half a surrogate": lambda m: b'{"host":"gpu-a07","x":"\\ud83d","MESSAGE":' + _json(m) + b"}",
    "array": lambda m: _json([{"msg": "usb 1-1: new device"}, _journal(m)]),
    "lines of json": lambda m: _json({"msg": "usb 1-1: new device"}) + b"\n" + _json(_journal(m)) + b"\n",
    "pretty json": lambda m: orjson.dumps(_journal(m), option=orjson.OPT_INDENT_2),
    "text and json": lambda m: b"[1.5] usb 1-1: new device\n" + _json(_journal(m)),
    "glued json": lambda m: _json({"msg": "usb 1-1: new device"}) + _json(_journal(m)),
    "cri in pieces": lambda m: f"{ISO} stdout P [1.5] {m[:20]}\n{ISO} stdout F {m[20:]}".encode(),
    "splunk": lambda m: _json({"time": SECONDS, "host": HOST, "source": "/dev/kmsg", "event": m}),
    "connect": lambda m: _json({"schema": None, "payload": _journal(m)}),
    "fluent pair": lambda m: _json([SECONDS, {"message": m, "host": HOST, "ident": "kernel"}]),
    "fluent bit event": lambda m: _json([[SECONDS, {}], {"log": m, "hostname": HOST}]),
    "fluent bit events": lambda m: _json(
        [[SECONDS, {"log": "usb 1-1: new device"}], [SECONDS, {"log": m, "hostname": HOST}]]
    ),
    "fluent forward": lambda m: _json(["kern.log", [[[SECONDS, {}], _journal(m)]]]),
    "journal export": lambda m: (
        b"__CURSOR=s=0a;i=1\n_HOSTNAME=gpu-a06\nMESSAGE=usb 1-1: new device\n\n__CURSOR=s=0a;i=2\n"
        b"__REALTIME_TIMESTAMP=1795245195123456\n_TRANSPORT=kernel\nSYSLOG_IDENTIFIER=kernel\n"
        + f"_HOSTNAME={HOST}\nMESSAGE={m}\n\n".encode()
    ),
    "journal export of bytes": lambda m: (
        f"__REALTIME_TIMESTAMP=1795245195123456\n_HOSTNAME={HOST}\n_TRANSPORT=kernel\nMESSAGE\n".encode()
        + len(m.encode()).to_bytes(8, "little")
        + m.encode()
        + b"\nPRIORITY=4\n\n"
    ),
    "telegraf tail": lambda m: _json(
        {
            "name": "tail",
            "tags": {"host": HOST, "path": "/var/log/kern.log"},
            "fields": {"value": f"Nov 21 07:13:15 {HOST} kernel: {m}"},
            "timestamp": 1795245195,
        }
    ),
    "logstash": lambda m: _json(
        {"@timestamp": ISO, "host": "10.0.0.5", "logsource": HOST, "program": "kernel", "message": m}
    ),
    "cloudwatch": lambda m: _json(
        {
            "messageType": "DATA_MESSAGE",
            "logGroup": "/gpu/host",
            "logStream": "i-0a1b",
            "logEvents": [
                {"id": "1", "timestamp": 1795245195123, "message": f"Nov 21 07:13:15 {HOST} kernel: {m}"}
            ],
        }
    ),
    "azure": lambda m: _json(
        {
            "records": [
                {
                    "time": ISO,
                    "category": "LinuxSyslog",
                    "properties": {"Computer": HOST, "ProcessName": "kernel", "SyslogMessage": m},
                }
            ]
        }
    ),
    "pubsub": lambda m: _json(
        {
            "message": {"data": base64.b64encode(_json(_journal(m))).decode(), "messageId": "1"},
            "subscription": "projects/p/subscriptions/s",
        }
    ),
    "google": lambda m: _json(
        {"textPayload": m, "timestamp": ISO, "resource": {"type": "k8s_node", "labels": {"node_name": HOST}}}
    ),
}
"""How a node's own messages come."""

_PLACES: dict[str, dict[str, Any]] = {
    "fluent bit": {
        "kubernetes": {
            "pod_name": "train-0",
            "namespace_name": "ml",
            "host": HOST,
            "container_name": "main",
            "labels": {"app": "train"},
        }
    },
    "lifted": {
        "kubernetes_pod_name": "train-0",
        "kubernetes_namespace_name": "ml",
        "kubernetes_host": HOST,
        "kubernetes_container_name": "main",
    },
    "vector": {
        "kubernetes": {
            "pod_name": "train-0",
            "pod_namespace": "ml",
            "pod_node_name": HOST,
            "container_name": "main",
        },
        "source_type": "kubernetes_logs",
    },
    "filebeat": {
        "kubernetes": {
            "pod": {"name": "train-0"},
            "namespace": "ml",
            "node": {"name": HOST},
            "container": {"name": "main"},
        }
    },
    "by file": {"file": "/var/log/pods/ml_train-0_0a1b2c3d-1/main/0.log", "hostname": HOST},
}


def _in_pod(place: dict[str, Any], field: str, wrap: Callable[[str], str]) -> Wrapping:
    return lambda m: _json({"@timestamp": ISO, "stream": "stderr", field: wrap(m), **place})


PODS: dict[str, Wrapping] = {
    f"{name}, {how}": _in_pod(place, field, wrap)
    for name, place in _PLACES.items()
    for how, field, wrap in (
        ("log", "log", lambda m: f"{m}\n"),
        ("message", "message", lambda m: m),
        ("raw cri", "log", lambda m: f"{ISO} stderr F {m}"),
        (
            "structured",
            "log",
            lambda m: _text({"level": "error", "ts": SECONDS, "logger": "train", "msg": m}),
        ),
    )
}
"""How a pod's messages come."""
