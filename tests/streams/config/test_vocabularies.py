"""A word of a table that is none of its vocabulary is refused, with the one that was meant: nothing would ever act on it."""

from pathlib import Path
from typing import Any

import pytest

from streams.config.table_overlay import VARIABLE
from streams.config.yaml_tables import load_table
from streams.correlate.job_rules.service_policy import ServicePolicy
from streams.correlate.node_rules.part_policy import PartPolicy
from streams.correlate.policy.families import FILE as FAMILIES
from streams.correlate.policy.families import Families
from streams.correlate.policy.policy import Policy
from streams.detect.alerts import AlertSheet
from streams.detect.catalog import FOLDER
from streams.detect.matching.log_patterns import PatternSheet
from streams.detect.metrics.pause_counters import PauseSheet
from streams.detect.metrics.rule_rows import MetricFile
from streams.detect.noise import DedupRules
from streams.detect.smi_query import SmiSheet
from streams.detect.sxid_catalog import SxidCatalog
from streams.detect.xid_catalog import XidCatalog
from streams.model.errors import ConfigError

CORRELATE = FAMILIES.parents[1]
RULE = "signals: [{kinds: [%s], family: %s, says: it}]"

TYPOS: dict[str, tuple[Path, Any, str, str]] = {
    "the action of an XID": (
        FOLDER / "xid.yaml", XidCatalog, "codes: [{codes: [79], action: contact_suport}]", "code 79: action: .*contact_support"),
    "its action when it repeats": (
        FOLDER / "xid.yaml", XidCatalog, "codes: [{codes: [79], investigatory: run_dcgmud}]", "mean run_dcgmeud"),
    "its family": (FOLDER / "xid.yaml", XidCatalog, "codes: [{codes: [79], family: gpu_of_bus}]", "mean gpu_off_bus"),
    "its severity": (FOLDER / "xid.yaml", XidCatalog, "codes: [{codes: [79], severity: critcal}]", "mean critical"),
    "what NVLink asks for": (
        FOLDER / "xid.yaml", XidCatalog, "nvlink5: [{unit: '*', action: reset_gpus}]", "nvlink5.0.action: .*mean reset_gpu"),
    "the action of an SXid": (FOLDER / "sxid.yaml", SxidCatalog, "unknown: {action: restart_bmm}", "mean restart_bm"),
    "the part of a switch": (
        FOLDER / "sxid.yaml", SxidCatalog, "units: [{first: 0, last: 9, mnemonic: X, family: nvswich}]", "mean nvswitch"),
    "what a line sets": (
        FOLDER / "lines/nvrm.yaml", PatternSheet, "rows: [{id: rm_init_failed, sets: {family: gpu_falt}}]", "mean gpu_fault"),
    "what a metric sets": (
        FOLDER / "metrics/gpu_memory.yaml", MetricFile, "rows: [{id: x, attributes: {action: reset_gpuu}}]", "mean reset_gpu"),
    "what nvidia-smi asks for": (FOLDER / "smi.yaml", SmiSheet, "recovery: {Reset: reset_gup}", "mean reset_gpu"),
    "the kind of an alert": (
        FOLDER / "alerts.yaml", AlertSheet, "rows: [{alert: x, kind: gpu.of_bus, severity: error}]", "mean gpu.off_bus"),
    "the kind of repetitions": (
        FOLDER / "noise.yaml", DedupRules, "kinds: {gpu.eccc: {distinct_by: []}}", "kinds.gpu.eccc: .*mean gpu.ecc"),
    "a direction": (
        FOLDER / "pauses.yaml", PauseSheet, "metrics: [{pattern: x, measures: frames, direction: recieved}]", "mean received"),
    "the name of a family": (FAMILIES, Families, "families: {gpu_of_bus: {rank: 3}}", "mean gpu_off_bus"),
    "a domain": (FAMILIES, Families, "families: {gpu_off_bus: {domain: gpuu}}", "mean gpu?"),
    "a certainty": (FAMILIES, Families, "families: {gpu_off_bus: {cap: decisiv}}", "mean decisive"),
    "what a family explains": (FAMILIES, Families, "families: {gpu_off_bus: {explains: [node_dwn]}}", "mean node_down"),
    "a decisive action": (FAMILIES, Families, "actions: {decisive: [restart_bn]}", "mean restart_bm"),
    "the kind of a signal": (FAMILIES, Families, RULE % ("gpu.slo", "gpu_fault"), "mean gpu.slow"),
    "the family of a signal": (FAMILIES, Families, RULE % ("gpu.slow", "gpu_falt"), "mean gpu_fault"),
    "what maintenance explains": (
        CORRELATE / "policy/policy.yaml", Policy, "maintenance: {expected: [node_dwn]}", "mean node_down"),
    "a row of severities": (
        CORRELATE / "policy/policy.yaml", Policy, "severity: [{families: [hangg], is: warning}]", "mean hang"),
    "trouble of a part": (
        CORRELATE / "node_rules/shared_parts.yaml", PartPolicy, "trouble: {node_dwn: went}", "mean node_down"),
    "a service": (CORRELATE / "job_rules/services.yaml", ServicePolicy, "alone: [registri]", "mean registry"),
}  # fmt: skip


@pytest.mark.parametrize("case", TYPOS)
def test_a_misspelt_word_is_refused_with_the_one_that_was_meant(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, kind, text, says = TYPOS[case]
    root = FOLDER if table.is_relative_to(FOLDER) else CORRELATE
    own = tmp_path / table.relative_to(root)
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(text)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(ConfigError, match=says):
        load_table(table, kind)


def test_every_fault_of_a_table_is_told_at_once_and_rows_by_their_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "codes: [{codes: [48], severty: error}, {codes: [79], eval_154: perhaps}, {codes: [9999], action: ignore}]"
    (tmp_path / "xid.yaml").write_text(rows)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(ConfigError) as raised:
        load_table(FOLDER / "xid.yaml", XidCatalog)
    found = [line.partition("over xid.yaml: ")[2] for line in str(raised.value).splitlines()]
    assert found[0] == "code 48: severty: there is no such key; did you mean severity?"
    assert found[1].startswith("code 79: eval_154: must be true or false")
    assert "code 9999: mnemonic: it is missing, and has no default" in found
