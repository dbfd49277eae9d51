"""No original name is in what is written, and what is written decides the same."""

from __future__ import annotations

import base64
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from faultline.replay.capture import Capture
from faultline.replay.redaction.pseudonyms import KEY_BYTES, Pseudonyms
from faultline.replay.redaction.redaction import Redaction, redaction_of
from faultline.replay.replay import From, replay_capture
from faultline.replay.replayed import Replayed
from sandbox.simulation.campaign import simulate
from sandbox.simulation.scenario import load as load_scenarios
from streams.model.codec import encode
from streams.model.entity import JobRef
from streams.model.facts import FactRecord, NodeFact, PodFact
from streams.model.record import RawRecord
from tests.effort import tries
from tests.faultline.replay.kafka_capture.published import with_facts
from tests.faultline.replay.test_replay import LIBRARY
from tests.tiers import sample

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = bytes(range(KEY_BYTES))
SCENARIOS = load_scenarios(Path(__file__).parents[4] / "bench" / "scenarios.yaml")


def raw(value: bytes, topic: str = "raw.node-logs", **changes: Any) -> RawRecord:
    return RawRecord(topic, 0, 0, NOON, None, value)._replace(**changes)


def told(node: str, namespace: str, pod: str, job: str, address: str) -> list[RawRecord]:
    """What the inventory says."""
    facts: tuple[NodeFact | PodFact, ...] = (
        NodeFact("c1", node, "u", NOON, addresses=(address,)),
        PodFact(
            "c1", namespace, pod, "u", NOON, node=node, job=JobRef("PyTorchJob", namespace, job), ip=address
        ),
    )
    return [
        RawRecord("inventory", 0, number, NOON, fact.key.encode(), encode(FactRecord(fact)))
        for number, fact in enumerate(facts)
    ]


def bytes_of(records: Iterable[RawRecord | None]) -> bytes:
    """All that is in records, with what is encoded in them beside it."""
    found: list[bytes] = []
    for record in records:
        if record is None:
            continue
        parts = [record.key or b"", record.value or b"", *(part for _, part in record.headers)]
        parts += [name.encode() for name, _ in record.headers]
        for part in parts:
            found += [part, part.replace(b"\\", b"")]
            for word in part.replace(b'"', b" ").split():
                try:
                    found.append(base64.b64decode(word, validate=True))
                except ValueError:
                    continue
            try:
                found.append(orjson.dumps(orjson.loads(part)))
            except orjson.JSONDecodeError:
                continue
    return b"\n".join(found).lower()


def escaped(name: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in name)


word = st.text("bcdfghjklmnpqrstvwxz", min_size=4, max_size=7).map(lambda text: f"q{text}")
host = st.tuples(word, st.integers(0, 99)).map(lambda pair: f"{pair[0]}-{pair[1]:02}")
octet = st.integers(1, 254)
address = st.tuples(st.sampled_from((10, 11, 100, 203)), octet, octet, octet).map(
    lambda p: ".".join(map(str, p))
)
hexes = st.text("0123456789abcdef", min_size=64, max_size=64)


@settings(max_examples=tries(60), deadline=None)
@given(host, word, word, word, word, address, hexes, word)
def test_no_original_name_is_in_any_record(
    node: str, namespace: str, job: str, user: str, company: str, ip: str, digits: str, project: str
) -> None:
    pod = f"{job}-worker-3"
    mac = ":".join(digits[at : at + 2] for at in range(0, 12, 2))
    uuid = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"
    guid, serial = f"a{digits[33:48]}", f"16{digits[48:57]}9".upper()
    ticket = f"{project.upper()}-1234"
    fqdn, mail = f"{node}.dc1.{company}.net", f"{user}@{company}.net"
    text = (
        f"Mar  1 12:00:00 {fqdn} sshd[7]: Accepted publickey for {user} from {ip} port 22; {pod} of {namespace}/{job} "
        f"mac {mac} GPU-{uuid} node_guid: 0x{guid} Serial Number: {serial} {mail} /home/{user}/{job}/out "
        f"https://jira.{company}.net/browse/{ticket} and again {ticket}, {node.upper()}"
    )
    inner = orjson.dumps({"log": f"\n{text}\t{node}", "nodes": [node]}).decode()
    records = [
        *told(node, namespace, pod, job, ip),
        raw(text.encode()),
        raw(orjson.dumps({"host": node, "msg": f"\n{node} and {namespace}"})),
        raw(orjson.dumps({"host": node, "msg": inner})),
        raw(f'{{"msg":"on {escaped(node)} by {escaped(user)}"}}'.encode()),
        raw(orjson.dumps({"data": base64.b64encode(f"ssh {node} as {user} from {ip}".encode()).decode()})),
        raw(gzip.compress(text.encode())),
        raw(b"x", key=node.encode(), headers=(("host", node.encode()), (f"pod-{pod}", ip.encode()))),
        raw(
            f"NodeList={node[:-2]}[01-04] {pod}.{namespace}.svc {node}:9400 http://{node}.{company}.net/x".encode()
        ),
        raw(orjson.dumps({"by": user, "ticket": ticket, "reason": f"{user} drained {node}"}), "commands"),
    ]
    redaction = redaction_of("c1", KEY, records)
    written = [redaction.record(record) for record in records]
    assert not redaction.left_out
    found = bytes_of(written)
    names = [
        node,
        namespace,
        job,
        pod,
        user,
        company,
        ip,
        mac,
        uuid,
        guid,
        serial,
        ticket,
        mail,
        f"{node[:-3]}-[",
    ]
    assert [name for name in names if name.lower().encode() in found] == []


PASSWORD = "zq8hunterzq"


def gzipped(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode())).decode()


ENCODED: dict[str, Callable[[str], str]] = {
    "percent": lambda text: f"http://p:9090/graph?g0.expr=up%7Binstance%3D%22{quote(text, safe='')}%22%7D",
    "percent, all of it": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "percent twice": lambda text: quote(quote(f" {text} ", safe=""), safe=""),
    "percent brackets": lambda text: f"a%5B{quote(text)}%5D%20b",
    "colour": lambda text: f"\x1b[31m{text}\x1b[0m",
    "colour in words": lambda text: f"\\x1b[31m{text}\\x1b[0m",
    "gzip in base64": gzipped,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(f"?{text}>~".encode()).decode().rstrip("="),
    "hex": lambda text: text.encode().hex(),
    "hex signs": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "tab": lambda text: f"a\\t{text}",
    "key": lambda text: f"addr_{text}",
    "login": lambda text: f"https://bob:{PASSWORD}@{text}/x",
    "login, percent": lambda text: quote(f"https://bob:{PASSWORD}@{text}/x", safe=""),
}


def within(text: str) -> str:
    """A text with all that is encoded in it beside it."""
    found, new = {text}, [text]
    for _ in range(4):
        new = [inner for one in new for inner in _decoded(one) if inner not in found]
        found.update(new)
    return "\n".join(found).lower()


def _decoded(text: str) -> Iterator[str]:
    yield unquote(text)
    yield re.sub(r"\\x([0-9a-fA-F]{2})", lambda one: chr(int(one[1], 16)), text)
    for token in re.findall(r"[A-Za-z0-9+/_-]{8,}", text):
        plain = token.replace("-", "+").replace("_", "/")
        for decode in (bytes.fromhex, lambda one: base64.b64decode(one + "=" * (-len(one) % 4))):
            try:
                raw = decode(plain)
                raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
                yield raw.decode()
            except (ValueError, OSError, EOFError, zlib.error):  # it only looks like something encoded
                continue


@settings(max_examples=tries(60), deadline=None)
@example("qbbbb-07", "10.1.1.77", "key", "tab")
@given(host, address, st.sampled_from(sorted(ENCODED)), st.sampled_from(sorted(ENCODED)))
def test_no_original_name_is_left_in_any_encoding_or_one_within_another(
    node: str, ip: str, inner: str, outer: str
) -> None:
    six = f"2001:db8:{node[-2:]}::{ip.split('.')[-1]}"
    records = [*told(node, "labspace", "jobname-worker-3", "jobname", ip)]
    written = {"node": node, "ip": ip, "mapped": f"::ffff:{ip}", "six": six, "glued": f"host={node}failed"}
    for name, text in written.items():
        encoded = ENCODED[outer](ENCODED[inner](text))
        redaction = redaction_of("c1", KEY, [*records, raw(encoded.encode())])
        left = within(by(redaction, f"{name} {encoded} end"))
        assert not [one for one in (node, ip, six, PASSWORD) if one in left], encoded


def test_an_address_with_dashes_is_one_in_dns_too() -> None:
    assert "10-3-2-1" not in (text := by(learned(), "at 10-3-2-1.pods.corp and ip-10-3-2-1"))
    assert text.count(Pseudonyms(KEY).ipv4("10.3.2.1").replace(".", "-")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "GPU serial number is SN8842KQZ171",
        "Serial Number : SN8842KQZ171",
        '"prefix_serial number: SN8842KQZ171_suffix"',
        "Serial No. SN8842KQZ171",
    ],
)
def test_serial_numbers_are_known_by_the_words_before(text: str) -> None:
    assert "SN8842KQZ171" not in by(learned(text), text)
    assert "1654921008842" not in by(learned("GPU serial number is 1654921008842"), "n1654921008842x")


def test_what_names_of_nodes_begin_with_is_no_rack_of_anybody() -> None:
    records = [*told("degu-rack9-07", "lab", "llm-worker-3", "llm", "10.3.2.1")]
    assert "degu" not in by(
        redaction_of("c1", KEY, records), '{"parts":{"rack":"degu-rack9-","x":"degu-rack9"}}'
    )


capital = word.map(str.capitalize)
full_name = st.lists(st.one_of(capital, capital.map(lambda name: f"{name}é")), min_size=2, max_size=4).map(
    " ".join
)
slack_id = st.text("ABCDEFGHJKLMNPQRSTUVWXYZ", min_size=3, max_size=6).map(lambda text: f"U0{text}7")


@settings(max_examples=tries(60), deadline=None)
@given(full_name, slack_id, slack_id, word, hexes, word, word)
def test_no_person_is_in_any_record(
    name: str, member: str, group: str, login: str, digits: str, account: str, company: str
) -> None:
    person, team, subject = f"{name} ({member})", f"slack:{group}", digits[:24]
    told_by = f"approval by {person} not accepted: {name} is not among responder.approvers ({team}), see <@{member}>"
    entry = {"actor": person, "event": "person.approval_refused", "text": told_by}
    url = f"http://{company}:8443/browse/GPU-1"
    records = [
        raw(orjson.dumps({"actor": person, "verb": "approve", "groups": [team], "via": "slack"}), "commands"),
        raw(orjson.dumps({"actor": login, "verb": "run", "reason": f"for {name}"}), "commands"),
        raw(orjson.dumps({"actor": f"oidc|{subject}", "verb": "ack"}), "commands"),
        raw(orjson.dumps({"actor": f"{name} (system:serviceaccount:lab:{account})"}), "commands"),
        raw(orjson.dumps(entry), "timeline"),
        raw(orjson.dumps({"log": [entry], "posts": [{"text": told_by}]}), "threads"),
        raw(orjson.dumps({"acked_by": person, "text": f"*{name}* has it"}), "notices"),
        raw(orjson.dumps({"approvals": [{"step": "cordon", "actor": person, "groups": [team]}]}), "runs"),
        raw(orjson.dumps({"url": url, "peer": "http://127.0.0.1:46177/x"}), "runs"),
        raw(f"payload {orjson.dumps(orjson.dumps(entry).decode()).decode()} {subject} {url}".encode()),
        raw(f'{{"msg":"by {escaped(name)} as {escaped(account)}"}}'.encode()),
    ]
    redaction = redaction_of("c1", KEY, records)
    written = bytes_of([redaction.record(record) for record in records]).decode(errors="replace")
    secret = [*name.split(), member, group, login, subject, account, company, "127.0.0.1"]
    assert [one for one in secret if one.lower() in written] == []
    assert "person.approval_refused" in written
    assert "responder.approvers" in written
    assert '"via":"slack"' in written


def by(redaction: Redaction, text: str) -> str:
    changed = redaction.record(raw(text.encode()))
    assert changed is not None
    return (changed.value or b"").decode()


def learned(*texts: str) -> Redaction:
    records = told("gpu-a01-07", "lab", "llm-worker-3", "llm", "10.3.2.1")
    records += told("gpu-a01-08", "lab", "llm-worker-4", "llm", "10.3.2.2")
    return redaction_of("c1", KEY, [*records, *(raw(text.encode()) for text in texts)])


def test_the_same_name_is_the_same_pseudonym_wherever_it_stands() -> None:
    redaction = learned()
    alone = by(redaction, "gpu-a01-07")
    assert by(redaction, "x gpu-a01-07: y") == f"x {alone}: y"
    assert by(redaction, "gpu-a01-07-bmc") == f"{alone}-bmc"
    assert by(redaction, "GPU-A01-07").lower() == alone


def test_digits_order_and_what_names_begin_with_stay() -> None:
    redaction = learned()
    seven, eight = by(redaction, "gpu-a01-07"), by(redaction, "gpu-a01-08")
    assert seven.endswith("01-07")
    assert seven[:-2] == eight[:-2]
    assert by(redaction, "gpu-a01-[07-08]") == f"{seven[:-2]}[07-08]"
    assert by(redaction, "llm-worker-3").startswith(by(redaction, "llm"))


def test_addresses_of_one_network_stay_in_one() -> None:
    names = Pseudonyms(KEY)
    assert names.ipv4("10.3.2.1").rpartition(".")[0] == names.ipv4("10.3.2.77").rpartition(".")[0]
    networks = {names.ipv4(f"10.{a}.{b}.1") for a in range(0, 256, 5) for b in range(0, 256, 5)}
    assert len(networks) == 52 * 52


def test_what_rules_look_at_stays() -> None:
    line = "NVRM: Xid (PCI:0000:9d:00): 79, pid=8812, name=python, GPU has fallen off the bus. c10::Error at 12:00:05"
    assert by(learned(), line) == line


def test_another_key_gives_other_pseudonyms_and_another_id() -> None:
    records = told("gpu-a01-07", "lab", "llm-worker-3", "llm", "10.3.2.1")
    one, other = redaction_of("c1", KEY, records), redaction_of("c1", bytes(KEY_BYTES), records)
    assert one.text("gpu-a01-07") != other.text("gpu-a01-07")
    assert one.id != other.id


def test_a_record_that_nobody_can_read_is_left_out_and_counted() -> None:
    redaction = learned()
    assert redaction.record(raw(b"\xff\xfe gpu-a01-07")) is None
    assert redaction.left_out == {"raw.node-logs": 1}


def test_protobuf_messages_keep_their_form() -> None:
    def field(number: int, inner: bytes) -> bytes:
        return bytes([number << 3 | 2, len(inner)]) + inner

    name = b"gpu-a01-07"
    message = field(1, field(1, b"host") + field(2, name)) + b"\x10\xff\x01" + field(3, b"\xff" * 8)
    changed = learned().record(raw(message))
    assert changed is not None
    other = by(learned(), name.decode()).encode()
    expected = field(1, field(1, b"host") + field(2, other)) + b"\x10\xff\x01" + field(3, b"\xff" * 8)
    assert changed.value == expected


def test_a_name_that_is_a_word_rules_look_for_is_replaced_where_it_stands_alone() -> None:
    records = told("gpu-a01-07", "watchdog", "watchdog-0", "watchdog", "10.3.2.1")
    redaction = redaction_of("c1", KEY, records)
    assert redaction.text.words == ["watchdog"]
    assert by(redaction, "a watchdog timeout") == "a watchdog timeout"
    assert "watchdog" not in by(redaction, '{"namespace":"watchdog","path":"/watchdog/x"}')


def test_ids_become_those_that_a_replay_with_pseudonyms_makes() -> None:
    taken = as_taken(simulate(SCENARIOS["gpu_off_bus"].sized(8), 1).capture)
    decided = replay_capture(taken, runbooks=LIBRARY, processes=1)
    records = [record for topic in taken.records.values() for record in topic]
    records += [raw(encode(one), "incidents", key=name.encode()) for name, one in decided.incidents.items()]
    records += [raw(encode(run), "runs", key=run.id.encode()) for run in decided.runs]
    redaction = redaction_of(taken.meta.cluster, KEY, records)
    topics: dict[str, list[RawRecord]] = {}
    for record in records:
        changed = redaction.record(record)
        assert changed is not None
        topics.setdefault(record.topic, []).append(changed)
    again = replay_capture(replace(taken, records=topics), runbooks=LIBRARY, processes=1, source=From.RAW)
    assert {record.key for record in topics["incidents"]} == {name.encode() for name in again.incidents}
    assert {record.key for record in topics["runs"]} == {run.id.encode() for run in again.runs}
    assert not set(again.incidents) & set(decided.incidents)


def as_taken(capture: Capture) -> Capture:
    """A simulated capture as one out of Kafka has it, with facts."""
    topics: dict[str, list[RawRecord]] = {}
    for record in with_facts(capture):
        topics.setdefault(record.topic, []).append(record)
    return Capture(capture.meta, topics)


def decisions(decided: Replayed, text: Any = str) -> list[object]:
    """What was decided, with names as `text` has them."""
    roots = {i.id: (i.family, text(str(i.root))) for i in decided.incidents.values()}
    incidents = [
        (
            roots[i.id],
            i.certainty,
            i.state,
            sorted(map(text, i.nodes)),
            sorted(text(str(job)) for job in i.jobs),
        )
        for i in decided.incidents.values()
    ]
    actions = [
        (roots[a.incident], a.runbook, text(a.step), a.action, a.verdict,
         "" if a.target.kind == "Incident" else text(str(a.target)))
        for a in decided.actions
    ]  # fmt: skip
    return [sorted(map(repr, incidents)), sorted(map(repr, actions))]


QUICK = ("gpu_off_bus", "leaf_down", "tensor_rank_hang", "lemon_host")


@pytest.mark.parametrize("scenario", sample(sorted(set(SCENARIOS) - {"month"}), *QUICK))
def test_a_redacted_campaign_is_decided_the_same(scenario: str) -> None:
    taken = as_taken(simulate(SCENARIOS[scenario].sized(8 if scenario in QUICK else 32), 1).capture)
    records = [record for topic in taken.records.values() for record in topic]
    redaction = redaction_of(taken.meta.cluster, KEY, records)
    topics: dict[str, list[RawRecord]] = {}
    for record in records:
        changed = redaction.record(record)
        assert changed is not None, "nothing of a campaign is left out"
        topics.setdefault(record.topic, []).append(changed)
    original = replay_capture(taken, runbooks=LIBRARY, processes=1)
    again = replay_capture(replace(taken, records=topics), runbooks=LIBRARY, processes=1)
    assert original.incidents or scenario == "quiet_day"
    assert decisions(again) == decisions(original, redaction.text)
