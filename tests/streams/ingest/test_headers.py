"""Hosts, programs and the kernel's mark in every header that loggers, switches and runtimes put before a message."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams.ingest import header, stamps

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
SWITCH_MESSAGE = "%PFCWD-4-STORM: it happened"

SWITCHES: list[tuple[str, str | None, str]] = [
    ("2026 Nov 21 07:13:13 leaf-1 ", "leaf-1", ""),
    ("2026 Nov 21 07:13:13 leaf-1 %$ VDC-1 %$ ", "leaf-1", ""),
    ("2026 Nov 21 07:13:13.123 leaf-1 %$ VDC-1 %$ ", "leaf-1", ""),
    ("<189>2026 Nov 21 07:13:13 leaf-1 ", "leaf-1", ""),
    ("<189>: 2026 Nov 21 07:13:13 leaf-1 ", "leaf-1", ""),
    ("<189>: 2026 Nov 21 07:13:13 UTC: ", None, ""),
    (": 2026 Nov 21 07:13:13 UTC: ", None, ""),
    ("<189>: 2026 Nov 21 07:13:13.123 UTC: ", None, ""),
    ("<189>: leaf-1: 2026 Nov 21 07:13:13 UTC: ", "leaf-1", ""),
    ("<189>leaf-1: 2026 Nov 21 07:13:13 UTC: ", "leaf-1", ""),
    ("Nov 21 07:13:13 leaf-1 : 2026 Nov 21 07:13:13 UTC: ", "leaf-1", ""),
    ("Nov 21 07:13:13 leaf-1 2026 Nov 21 07:13:13 leaf-1 ", "leaf-1", ""),
    ("Nov 21 07:13:13 10.0.0.9 : 2026 Nov 21 07:13:13.123 UTC: ", "10.0.0.9", ""),
    ("2026-11-21T07:13:13Z leaf-1 : 2026 Nov 21 07:13:13 UTC: ", "leaf-1", ""),
    ("2026-11-21T07:13:13.1+00:00 leaf-1 ", "leaf-1", ""),
    ("<189>1 2026-11-21T07:13:13Z leaf-1 - - - - ", "leaf-1", ""),
    ("", None, ""),
    ("leaf-1 ", "leaf-1", ""),
    ("Nov 21 07:13:13 leaf-1 Pfc: ", "leaf-1", "Pfc"),
    ("<164>Nov 21 07:13:13 leaf-1 Pfc: ", "leaf-1", "Pfc"),
    ("Nov 21 07:13:13.123456 leaf-1 PfcAgent: ", "leaf-1", "PfcAgent"),
    ("2026-11-21T07:13:13.123456+00:00 leaf-1 PfcAgent: 41: ", "leaf-1", "PfcAgent"),
    ("Nov 21 07:13:13 leaf-1 ConfigAgent[2201]: 5: ", "leaf-1", "ConfigAgent"),
    ("<165>1 2026-11-21T07:13:13.1Z leaf-1 Pfc - - - ", "leaf-1", "Pfc"),
    ("Nov 21 07:13:13 2026 leaf-1 Pfc: ", "leaf-1", "Pfc"),
    ("Nov 21 07:13:13.123 UTC: ", None, ""),
    ("*Nov 21 07:13:13.123: ", None, ""),
    ("000123: *Nov 21 07:13:13.123 UTC: ", None, ""),
    ("<189>123: leaf-1: Nov 21 07:13:13.123 UTC: ", "leaf-1", ""),
]


@pytest.mark.parametrize(("prefix", "host", "agent"), SWITCHES)
def test_a_switchs_message_begins_at_its_mnemonic(prefix: str, host: str | None, agent: str) -> None:
    found = header.read(prefix + SWITCH_MESSAGE, NOW)
    assert (prefix + SWITCH_MESSAGE)[found.start :] == SWITCH_MESSAGE
    assert (found.host, found.tag, found.kernel) == (host, agent, False)
    assert (found.at is None) == (":13" not in prefix)


@pytest.mark.parametrize(
    "text",
    [
        "we saw %PFCWD-4-STORM: it happened",
        "Nov 21 07:13:13 leaf-1 app: what does %PFCWD-4-STORM: mean",
        "usage is 97% on leaf-1: full",
        "dana on leaf-1 %PFCWD-4-STORM: it happened",
    ],
)
def test_words_before_a_mnemonic_are_no_header(text: str) -> None:
    assert not text[header.read(text, NOW).start :].startswith("%")


LOGGERS: list[tuple[str, str | None, str, bool]] = [
    ("2026-11-21T07:13:13.123456+00:00 leaf-1 switchd[2211]: ", "leaf-1", "switchd", False),
    ("2026-11-21T07:13:13.123456+00:00 leaf-1 bgpd[901]: [VTVCM-Y2NW3] ", "leaf-1", "bgpd", False),
    ("Nov 21 07:13:13 leaf-1 watchfrr[77]: [WFP93-1D146] ", "leaf-1", "watchfrr", False),
    ("2026-11-21T07:13:13.123456-08:00 leaf-1 nvued:    INFO: ", "leaf-1", "nvued", False),
    ("Nov 21 07:13:13.123456 leaf-1 NOTICE swss#orchagent: :- ", "leaf-1", "swss#orchagent", False),
    ("Nov 21 07:13:13.123456 leaf-1 WARNING swss#orchagent[31]: :- ", "leaf-1", "swss#orchagent", False),
    ("2026 Nov 21 07:13:13.123456 leaf-1 NOTICE swss#orchagent: :- ", "leaf-1", "swss#orchagent", False),
    ("NOTICE swss#orchagent: :- ", None, "swss#orchagent", False),
    ("<13>Nov 21 07:13:13 leaf-1 NOTICE swss#orchagent: :- ", "leaf-1", "swss#orchagent", False),
    ('<4>1 2026-11-21T07:13:13Z n1 kernel - - [a b="x\\]y" c="[z]"][d@1 e="f"] ', "n1", "kernel", True),
    ('<4>1 2026-11-21T07:13:13Z n1 kernel - - [a b="say \\"hi\\" ]"] ', "n1", "kernel", True),
    ("<4>1 - n1 kernel - - - ", "n1", "kernel", True),
    ("<30>1 2026-11-21T07:13:13.123456+01:00 n1 app 812 ID47 - ", "n1", "app", False),
    ("1 2026-11-21T07:13:13.123456+01:00 n1 kernel 812 ID47 - ", "n1", "kernel", True),
    ("Nov 21 07:13:13 n1 kernel[0]: ", "n1", "kernel", True),
    ("Nov 21 2026 07:13:13 n1 kernel: ", "n1", "kernel", True),
    ("2026/11/21 07:13:13 n1 kernel: ", "n1", "kernel", True),
    ("2026-11-21 07:13:13,123 n1 kernel: ", "n1", "kernel", True),
    ("Nov 21 07:13:13 n1.example.net kernel: [12345.678901] ", "n1.example.net", "kernel", True),
    ("Nov 21 07:13:13 10.1.2.3 kernel: [12345.678901] ", "10.1.2.3", "kernel", True),
    ("Nov 21 07:13:13 fe80::1 kernel: [12345.678901] ", "fe80::1", "kernel", True),
    ("Nov 21 07:13:13 _gateway kernel: ", "_gateway", "kernel", True),
    ("Nov 21 07:13:13 n1 kernel: <4>[12345.678901] ", "n1", "kernel", True),
    ("[Sat Nov 21 07:13:13 2026] ", None, "", True),
    ("kern  :warn  : [Sat Nov 21 07:13:13 2026] ", None, "", True),
    ("kern  :err   : [12345.678901] ", None, "", True),
    ("kern  :err   : [2026-11-21T07:13:13,123456+00:00] ", None, "", True),
    ("<4>[12345.678901] ", None, "", True),
    ("<4>[12345.678901][ T1234] ", None, "", True),
    ("[12345.678901][    C3] ", None, "", True),
    ("2026-11-21T07:13:13,123456+00:00 ", None, "", False),
    ("[2026-11-21T07:13:13,123456+00:00] ", None, "", False),
    ("4,123,6781741548779,-;", None, "", True),
    ("n1: 4,123,6781741548779,-;", "n1", "", True),
    ("n1: kern:    warning: [2026-11-21T07:13:13.1Z]: ", "n1", "kern", True),
    ("172.20.0.2: kern:     err: [2026-11-21T07:13:13.1Z]: ", "172.20.0.2", "kern", True),
    ("172.20.0.2: kern: warning: [2026-11-21T07:13:13.123456789Z]: ", "172.20.0.2", "kern", True),
    ("2026-11-21T07:13:13.123456789Z stderr F ", None, "", False),
    ("2026-11-21T07:13:13.123456789+01:00 stdout P Nov 21 07:13:12 n1 kernel: ", "n1", "kernel", True),
    ("Sat 2026-11-21 07:13:13.123456 UTC n1 kernel: ", "n1", "kernel", True),
    ("Sat 2026-11-21 07:13:13 UTC n1 kernel: ", "n1", "kernel", True),
    ("1795245195.123456 n1 kernel: ", "n1", "kernel", True),
    ("2026-11-21T07:13:13+0000 n1 kernel: ", "n1", "kernel", True),
    ("2026-11-21T07:13:13.123Z n1 kernel: ", "n1", "kernel", True),
    ("n1 | [12345.678901] ", None, "", True),
    ("[pod/dmesg-x/main] [12345.678901] ", None, "", True),
    ("gpu-1: Nov 21 07:13:13 gpu-1 kernel: ", "gpu-1", "kernel", True),
    ("E1121 07:13:13.123456   12345 kubelet.go:123] ", None, "", False),
    ("2026-11-21 07:13:13,123 - trainer.dist - ERROR - ", None, "trainer.dist", False),
    ("2026-11-21 07:13:13,123 - root - WARNING - [default3]:", None, "root", False),
    (
        "Nov 21 07:13:13 n1 kubelet[812]: E1121 07:13:13.123456     812 kubelet.go:123] ",
        "n1",
        "kubelet",
        False,
    ),
    ("Nov 21 07:13:13 n1 systemd-journald[412]: ", "n1", "systemd-journald", False),
    ("Nov 21 07:13:13 n1 python3.11[412]: ", "n1", "python3.11", False),
    ("Nov 21 07:13:13 n1 /usr/bin/nvidia-persistenced[412]: ", "n1", "/usr/bin/nvidia-persistenced", False),
    ("Nov 21 07:13:13 n1 nvidia-fabricmanager(prod)[412]: ", "n1", "nvidia-fabricmanager", False),
    ("Nov 21 07:13:13 n1 slurmstepd[412]: error: ", "n1", "slurmstepd", False),
    ("Nov 21 07:13:13 ip-10-0-0-1 kernel: ", "ip-10-0-0-1", "kernel", True),
]


@pytest.mark.parametrize(("prefix", "host", "program", "kernel"), LOGGERS)
def test_a_header_names_host_and_program(prefix: str, host: str | None, program: str, kernel: bool) -> None:
    found = header.read(prefix + "it happened", NOW)
    assert (found.host, found.tag, found.kernel) == (host, program, kernel)
    message = (prefix + "it happened")[found.start :]
    assert message.endswith("it happened")
    assert "07:13" not in message.replace("E1121 07:13", "")


AT = datetime(2026, 11, 21, 7, 13, 13, tzinfo=UTC)
STAMPS = [
    "Sat 21 Nov 2026 07:13:13 AM UTC ",
    "21 Nov 2026 07:13:13 ",
    "21.11.2026 07:13:13 ",
    "21/11/2026 07:13:13 ",
    "11/21/2026 07:13:13 ",
    "(2026-11-21 07:13:13) ",
    "[2026-11-21 07:13:13 UTC] ",
    "Nov. 21 07:13:13 ",
    "nov. 21 07:13:13 ",
    "лис. 21 07:13:13 ",
    "11月 21 07:13:13 ",
    "Sa Nov 21 2026 07:13:13 ",
    "20261121T071313Z ",
    "20261121 07:13:13 ",
    "2026年11月21日 07:13:13 ",
    "07:13:13 ",
    "1795245193 ",
    "1795245193123 ",
    "@1795245193.000 ",
]


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_time_is_read_in_any_writing(stamp: str) -> None:
    found = header.read(f"{stamp}gpu-a07 kernel: it happened", NOW)
    assert found.at is not None
    assert found.at.replace(microsecond=0) == AT
    assert (found.host, found.kernel) == ("gpu-a07", True)


@pytest.mark.parametrize(
    ("month", "number"),
    [("janv.", 1), ("févr.", 2), ("März", 3), ("avr", 4), ("мая", 5), ("juin", 6), ("juil.", 7), ("août", 8)],
)
def test_a_month_is_known_in_other_languages(month: str, number: int) -> None:
    assert stamps.month_of(month) == number
    assert stamps.month_of("anna") is None


LAYERS = [
    ("[1,3]<stderr>: 2026-11-21T07:13:13Z gpu-a07 kernel: ", "gpu-a07"),
    ("12: [gpu-a08] Nov 21 07:13:13 gpu-a07 kernel: ", "gpu-a07"),
    ("gpu-a07 | [812.1] ", None),
    ("gpu-a07: [Sat Nov 21 07:13:13 2026] ", "gpu-a07"),
    ("(Probe pid=7, ip=10.0.0.9) [pod/watch-1/dmesg] 2026-11-21T07:13:13Z gpu-a07 kernel: ", "gpu-a07"),
    ('2026-11-21T07:13:13Z {node="gpu-a07", job="kernel"} ', "gpu-a07"),
    ('level=warn host=gpu-a07 facility=kern msg="', "gpu-a07"),
    ('level=warn facility=kern msg="it happened" host=gpu-a07', "gpu-a07"),
]


@pytest.mark.parametrize(("layers", "host"), LAYERS)
def test_layers_are_peeled_and_the_innermost_host_counts(layers: str, host: str | None) -> None:
    text = layers if "it happened" in layers else f"{layers}it happened"
    found = header.read(text, NOW)
    assert text[found.start :].startswith("it happened")
    assert (found.host, found.kernel) == (host, True)


@pytest.mark.parametrize(
    "mark", ["OPS-812 ", "[OPS-812] ", "INC0012345 | ", "anna ", "- ", "P2 | OPS-812 | "]
)
def test_peoples_marks_are_no_layers(mark: str) -> None:
    found = header.read(f"{mark}Nov 21 07:13:13 gpu-a07 kernel: it happened", NOW)
    assert (found.host, found.kernel) == (None, False)


@pytest.mark.parametrize("stamp", ["Sat Nov 21 07:13:13.400 2026: ", "2026-11-21_07:13:13.400+0000: "])
@pytest.mark.parametrize(
    "message", ["Lost membership in cluster a.example.", "[E] Disk failure.", "Node-7 is gone"]
)
def test_a_daemons_own_time_is_no_program_and_no_host(stamp: str, message: str) -> None:
    found = header.read(stamp + message, NOW)
    assert (found.start, found.host, found.tag, found.kernel) == (len(stamp), None, "", False)
    assert found.at == datetime(2026, 11, 21, 7, 13, 13, 400_000, tzinfo=UTC)
