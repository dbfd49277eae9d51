"""Every shipper's configuration that ships: it parses, writes to topics that exist, keys by node, and holds no secret."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from streams.kafka.topics import RAW

SHIPPERS = Path(__file__).parents[2] / "k8s/shippers"
FILES = sorted(file for file in SHIPPERS.rglob("*") if file.is_file())
PAGE = Path(__file__).parents[2] / "docs/shippers.md"

TO_KAFKA = {
    "fluent-bit/fluent-bit.yaml": {"raw.node-logs", "raw.job-logs"},
    "kmsg/fluent-bit.yaml": {"raw.node-logs", "raw.job-logs"},
    "vector/vector.yaml": {"raw.node-logs", "raw.job-logs"},
    "otel-collector/collector.yaml": {"raw.node-logs", "raw.job-logs", "raw.metrics"},
    "telegraf/telegraf.conf": {"raw.metrics"},
    "rsyslog/60-faultline.conf": {"raw.node-logs"},
    "rsyslog/70-faultline-switches.conf": {"raw.fabric"},
    "syslog-ng/faultline.conf": {"raw.node-logs"},
    "journal-upload/collector.yaml": {"raw.node-logs"},
    "filebeat/filebeat.yml": {"raw.node-logs", "raw.job-logs"},
    "prometheus-kafka-adapter/adapter.yaml": {"raw.metrics"},
    "kubernetes-event-exporter/exporter.yaml": {"raw.k8s-events"},
    "gnmic/gnmic.yaml": {"raw.fabric"},
}
"""The topics that each file writes to."""

KEYS = {
    "fluent-bit/fluent-bit.yaml": "message_key: ${NODE_NAME}",
    "kmsg/fluent-bit.yaml": "message_key: ${NODE_NAME}",
    "vector/vector.yaml": "key_field: node_name",
    "otel-collector/collector.yaml": "partition_logs_by_resource_attributes: true",
    "telegraf/telegraf.conf": 'routing_tag = "host"',
    "rsyslog/60-faultline.conf": 'key="FaultlineNode"',
    "rsyslog/70-faultline-switches.conf": 'key="FaultlineNode"',
    "syslog-ng/faultline.conf": 'key("$HOST")',
    "journal-upload/collector.yaml": "partition_logs_by_resource_attributes: true",
    "filebeat/filebeat.yml": "key: '%{[node_name]}'",
    "gnmic/gnmic.yaml": "insert-key: true",
}
"""How each says that records of one node, or switch, stay in one partition. The two others cannot."""

_SECRET = re.compile(
    r"(?i)\b(?:password|passwd|token|secret|api[_-]?key)\b[\"']?\s*[:=]\s*[\"']?(?P<value>[^\s,\"'})\]]+)"
)
_REFERENCE = re.compile(r"\$\{?[A-Za-z_]")


def name_of(file: Path) -> str:
    return str(file.relative_to(SHIPPERS))


def code_of(file: Path) -> str:
    """The file without its comments."""
    lines = file.read_text().splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def parsed(file: Path) -> list[Any]:
    text = file.read_text()
    if file.suffix in {".yaml", ".yml"}:
        return list(yaml.safe_load_all(text))
    if file.suffix == ".json":
        return [json.loads(text)]
    if file.parent.name == "telegraf":
        return [tomllib.loads(text)]
    if file.parent.name == "journal-upload":
        ini = ConfigParser()
        ini.read_string(text)
        return [dict(ini)]
    assert text.count("{") == text.count("}")
    assert text.count("(") == text.count(")")
    return [text]


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_each_file_parses_and_begins_with_what_it_is_for(file: Path) -> None:
    assert all(document is not None for document in parsed(file))
    assert file.suffix == ".json" or file.read_text().startswith("# ")


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_no_file_holds_a_secret(file: Path) -> None:
    for found in _SECRET.finditer(code_of(file)):
        assert _REFERENCE.match(found["value"]) or found["value"].startswith("{"), found[0]


def test_every_file_that_names_a_raw_topic_is_listed_here() -> None:
    naming = {name_of(file) for file in FILES if re.search(r"raw\.[a-z]", code_of(file))}
    assert naming == set(TO_KAFKA)


@pytest.mark.parametrize("name", TO_KAFKA)
def test_it_writes_to_topics_that_exist_and_to_no_other(name: str) -> None:
    written = set(re.findall(r"raw\.[a-z0-9-]+", code_of(SHIPPERS / name)))
    assert written == TO_KAFKA[name]
    assert written <= {topic.name for topic in RAW}


@pytest.mark.parametrize("name", KEYS)
def test_one_nodes_records_stay_in_one_partition(name: str) -> None:
    assert KEYS[name] in code_of(SHIPPERS / name)


def acknowledgements(code: str) -> Iterator[str]:
    yield from re.findall(r"(?<![-_])\backs(?:: |=|\(\")(\w+)", code)
    yield from re.findall(r"required[_-]acks(?:: | = )([\w-]+)", code)


@pytest.mark.parametrize("name", KEYS)
def test_it_is_encrypted_compressed_and_waits_for_all_replicas(name: str) -> None:
    code = code_of(SHIPPERS / name)
    assert set(acknowledgements(code)) <= {"all", "-1", "wait-for-all"}
    assert list(acknowledgements(code))
    assert re.search(
        r"(?i)sasl_ssl|security\.protocol(?:=ssl|\(\"ssl\"\))|tls_ca|tls: \{|ssl\.certificate_authorities",
        code,
    )
    assert "lz4" in code or "compression_codec = 3" in code


@pytest.mark.parametrize("name", sorted(set(KEYS) - {"gnmic/gnmic.yaml"}))
def test_what_waits_for_the_broker_lies_on_disk_within_a_bound(name: str) -> None:
    code = code_of(SHIPPERS / name)
    bounds = (
        r"storage\.total_limit_size: \d",
        r"type: disk, max_size: \d",
        r"queue_size: \d{6}",
        r"metric_buffer_limit = \d",
        r"queue\.maxDiskSpace=\"\d",
        r"disk-buf-size\(\d",
        r"queue\.disk: \{path: \S+ max_size: \d",
    )
    assert any(re.search(bound, code) for bound in bounds)


def test_a_pods_output_only_ever_gets_into_the_jobs_topic() -> None:
    documents = parsed(SHIPPERS / "fluent-bit/fluent-bit.yaml")[0]["pipeline"]
    tags = {source["tag"]: source["name"] for source in documents["inputs"]}
    assert tags == {"node.journal": "systemd", "node.heartbeat": "dummy", "pod.log": "tail"}
    topics = {output["match"]: output["topics"] for output in documents["outputs"]}
    assert topics == {"node.*": "raw.node-logs", "pod.*": "raw.job-logs"}
    vector = parsed(SHIPPERS / "vector/vector.yaml")[0]
    assert vector["sinks"]["job_logs"]["inputs"] == ["job_logs"]
    assert vector["transforms"]["job_logs"]["inputs"] == ["pods"]
    pipelines = parsed(SHIPPERS / "otel-collector/collector.yaml")[0]["service"]["pipelines"]
    assert pipelines["logs/node"]["receivers"] == ["journald"]
    assert pipelines["logs/jobs"]["exporters"] == ["kafka/job-logs"]


@pytest.mark.parametrize(
    "name", ["fluent-bit/fluent-bit.yaml", "otel-collector/collector.yaml", "filebeat/filebeat.yml"]
)
def test_of_the_journal_only_the_kernel_and_root_speak_for_the_node(name: str) -> None:
    code = code_of(SHIPPERS / name)
    assert set(re.findall(r"_TRANSPORT(?:=|: )\"?(\w+)", code)) == {"kernel"}
    assert set(re.findall(r"_UID(?:=|: )\"?(\w+)", code)) == {"0"}
    assert re.search(r"CONTAINER_NAME|container\.id", code)


def daemon_set() -> dict[str, Any]:
    documents = parsed(SHIPPERS / "fluent-bit/daemonset.yaml")
    return next(document for document in documents if document["kind"] == "DaemonSet")


def test_the_daemon_set_runs_on_every_node_whatever_its_taints() -> None:
    pod = daemon_set()["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}


def test_the_daemon_set_may_read_and_nothing_else() -> None:
    pod = daemon_set()["spec"]["template"]["spec"]
    assert not pod["automountServiceAccountToken"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert not security["privileged"]
    assert not security["allowPrivilegeEscalation"]
    assert security["readOnlyRootFilesystem"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"]["memory"]
    of_host = {volume["name"] for volume in pod["volumes"] if "hostPath" in volume}
    writable = {mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert of_host == {"journal", "pods", "machine-id", "state"}
    assert writable == {"state"}


def test_the_page_has_a_row_for_every_shipper() -> None:
    page = PAGE.read_text()
    for folder in sorted({file.parent.name for file in FILES}):
        assert f"k8s/shippers/{folder}" in page, folder
