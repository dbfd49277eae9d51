"""A typo in the settings is refused before anything starts, at its place, with what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from faultline.cli.main import cli
from faultline.runtime.settings import load
from streams.model.errors import ConfigError
from tests.deploy.manifests import BASE

TYPOS = {
    "kafka: {bootstrap: broker}": "kafka.bootstrap: 'broker' is not host:port; did you mean broker:9092?",
    "kafka: {bootstrap: 'a:1,b:99999'}": "kafka.bootstrap: 'b:99999' is not host:port",
    "kafka: {topic_prefix: 'a b.'}": "kafka.topic_prefix: 'a b.' cannot begin a topic name",
    "kafka: {session_timeout_ms: 99999999}": "kafka.session_timeout_ms: must be less than or equal to 1800000",
    "kafka: {replication_factor: 1, min_insync_replicas: 2}": "kafka.min_insync_replicas: 2 replicas cannot confirm",
    "kafka: {sasl_username: me}": "kafka.sasl_username: not used, because kafka.security_protocol is PLAINTEXT",
    "kafka: {security_protocol: SASL_SSL, sasl_username: me}": "kafka.sasl_password: not set, and SASL_SSL needs it",
    "kafka: {ssl_cafile: /ca.pem}": "kafka.ssl_cafile: not used",
    "kafka: {security_protocol: SSL, ssl_keyfile: /k}": "kafka.ssl_keyfile: needs kafka.ssl_certfile as well",
    "cluster: 'a b/c'": "cluster: 'a b/c' is not a cluster name",
    "http_host: 'a b'": "http_host: 'a b' is not an address to listen on",
    "detector: {cluster_header: 'my header'}": "detector.cluster_header: 'my header' is not a record header name",
    "detector: {poll_ms: 3600000}": "detector.poll_ms: must be less than or equal to 10000",
    "inventory: {relist_s: .nan}": "inventory.relist_s: must be a finite number",
    "inventory: {job_kinds: [foo]}": "inventory.job_kinds.0: 'foo' is not group/version/Kind",
    "inventory: {job_kinds: [Jobset]}": "did you mean jobset.x-k8s.io/v1alpha2/JobSet?",
    "inventory: {job_kinds: [batch/v1/Jobs]}": "batch/v1/Jobs is not a known kind; did you mean batch/v1/Job?",
    "inventory: {job_kinds: [kubeflow.org/v1/PytorchJob]}": "did you mean kubeflow.org/v1/PyTorchJob?",
    "inventory: {job_kinds: [kubflow.org/v1/PyTorchJob]}": "did you mean kubeflow.org/v1/PyTorchJob?",
    "inventory: {rack_labels: ['a b']}": "inventory.rack_labels.0: 'a b' is not a label key",
    "inventory: {protected_labels: ['role=a b']}": "inventory.protected_labels.0: 'a b' is not a label value",
    "correlator: {tick_s: 60}": "correlator.tick_s: must be less than or equal to 15",
    "responder: {mode: atuo}": "responder.mode: 'atuo' is none of shadow, approve, auto; did you mean auto?",
    "responder: {lease_s: -1}": "responder.lease_s: must be greater than 0",
    "responder: {protect: {nodes: [GPU-07]}}": "responder.protect.nodes.0: 'GPU-07' is not a node name",
    "responder: {approvers: [' ada']}": "responder.approvers.0: ' ada' is not a name",
    "responder: {approval_groups: {oncall: [ada, bo]}, approval_classes: {close: {group: onccall}}}": (
        "responder.approval_classes.close: no group onccall; approval_groups has oncall; did you mean oncall?"
    ),
    "responder: {closed_times: [{name: w, cron: '0 5 * * *', duration_s: 9, namespaces: [Team_A]}]}": (
        "responder.closed_times.0.namespaces.0: 'Team_A' is not a namespace"
    ),
    "responder: {blast_radius: {per_pool: {max_node: 2}}}": (
        "responder.blast_radius.per_pool.max_node: there is no such setting; did you mean max_nodes?"
    ),
    "node_work: {namespace: Node Work}": "node_work.namespace: 'Node Work' is not a namespace",
    "slack: {token: xoxb-1}": "slack.channel: not set, and slack.token needs a channel to post in",
    "slack: {channel: '#gpu'}": "slack.channel: '#gpu' is not a channel id",
    "slack: {posts_per_s: .inf}": "slack.posts_per_s: must be a finite number",
    "jira: {base_url: not a url}": "jira.base_url: 'not a url' is not a URL",
    "jira: {base_url: site.atlassian.net}": "did you mean https://site.atlassian.net?",
    "jira: {base_url: 'ftp://site'}": "jira.base_url: 'ftp://site' is not a URL",
    "jira: {project: gpu}": "jira.project: 'gpu' is not a project key",
    "tickets: {system: github}": "tickets.github.repository: not set, and tickets.system is github",
    "tickets: {system: gitlab, gitlab: {project: a/b}}": "tickets.gitlab.token: not set, and tickets.system is gitlab",
    "tickets: {system: servicenow}": "tickets.servicenow.base_url: not set, and tickets.system is servicenow",
    "tickets: {system: git-hub}": "tickets.system: 'git-hub' is none of jira",
    "tickets: {github: {repository: gpu-tickets}}": "'gpu-tickets' is not a repository: OWNER/NAME",
    "tickets: {fields: {labels: hardware}}": "tickets.fields: labels is a list there, e.g. [hardware]",
    "tickets: {fields: {summary: mine}}": "tickets.fields: summary is written by Faultline itself",
    "tickets: {fields: {cmdb_ci: '{noed}'}}": "{noed} is no fact of an incident; did you mean node?",
    "tickets: {fields: {a: [{name: '{root.uuid}'}]}}": "braces hold one name",
    "tickets: {fields: {a: '{node'}}": "tickets.fields",
    "responder: {tenants: [{team: ml}]}": "ml: says of no job that it is its own",
    "responder: {tenants: [{team: ml, namespaces: ['*']}]}": "ml: says of every job that it is its own",
    "responder: {tenants: [{team: ml, namespaces: [ml, '**'], marks: ['*']}]}": "says of every job",
    "kafak: {bootstrap: 'a:1'}": "kafak: there is no such setting; did you mean kafka?",
    "bootstrap: 'a:1'": "bootstrap: there is no such setting; did you mean kafka.bootstrap?",
    "kafka: {raw_partitions: 3, raw_partitions: 4}": "kafka.raw_partitions: the key is there twice",
}


@pytest.mark.parametrize("text", TYPOS)
def test_a_typo_is_refused_with_its_line_and_what_was_meant(tmp_path: Path, text: str) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text(f"# a comment\n{text}\n")
    with pytest.raises(ConfigError) as refused:
        load(file)
    assert f"{file}:2: " in str(refused.value)
    assert TYPOS[text] in str(refused.value)


def test_a_pattern_for_all_beside_a_narrower_one_is_a_row_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text("responder: {tenants: [{team: ml, namespaces: ['*'], queues: [gpu-ml]}]}\n")
    assert load(file).responder.tenants[0].team == "ml"


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("FAULTLINE_KAFKA_BOOTSTRAP", "a:1", "did you mean FAULTLINE_KAFKA__BOOTSTRAP?"),
        (
            "FAULTLINE_KAFKA__BOOTSTRP",
            "a:1",
            "kafka.bootstrp: there is no such setting; did you mean bootstrap?",
        ),
        ("FAULTLINE_RESPONDER__APPROVERS", "ada", "responder.approvers: no JSON"),
        ("FAULTLINE_RESPONDER__MODE", "Auto", "did you mean auto?"),
    ],
)
def test_a_slip_in_the_environment_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, complaint: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as refused:
        load()
    assert f"  {variable}: " in str(refused.value)
    assert complaint in str(refused.value)


def test_all_slips_are_told_at_once_and_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text(
        "cluster: a/b\n"
        "kafka: {bootstrap: b, sasl_username: me}\n"
        "responder:\n"
        "  mode: yolo\n"
        "  approval_classes: {close: {group: oncall}}\n"
    )
    monkeypatch.setenv("FAULTLINE_RESPONDER__LEASE_S", "40")
    monkeypatch.setenv("FAULTLINE_KAFK__BOOTSTRAP", "b:2")
    with pytest.raises(ConfigError) as refused:
        load(file)
    told = [line.strip().removeprefix(f"{file}:") for line in str(refused.value).splitlines()[1:]]
    assert sorted(line.split(": ")[0:2] for line in told) == sorted(
        [
            [
                "FAULTLINE_KAFK__BOOTSTRAP",
                "there is no setting `kafk`; did you mean FAULTLINE_KAFKA__BOOTSTRAP?",
            ],
            ["1", "cluster"],
            ["2", "kafka.bootstrap"],
            ["2", "kafka.sasl_username"],
            ["4", "responder.mode"],
            ["5", "responder.approval_classes.close"],
            ["FAULTLINE_RESPONDER__LEASE_S", "responder.lease_s"],
        ]
    )


def test_what_follows_from_another_typo_is_not_reported_as_well(tmp_path: Path) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text("kafka: {session_timeout_ms: many}\nresponder: {lease_s: 30}\n")
    with pytest.raises(ConfigError) as refused:
        load(file)
    assert [line.split(": ")[1] for line in str(refused.value).splitlines()[1:]] == [
        "kafka.session_timeout_ms"
    ]


ROWS = """responder:
  lease_s: 2
  rollout:
    - {pool: h100, stage: act, until: 2020-01-01T00:00:00Z, then: act}
    - {pool: a100, stage: canary}
    - {pool: h100, stage: observe}
    - {pool: a100, stage: observe, untill: 2020-01-01T00:00:00Z}
  closed_times:
    - {name: night, cron: "0 25 * * *", duration_s: 60, tz: Mars/Base}
    - {name: none}
"""
IN_ROWS = {
    "2: responder.lease_s: 2 s must exceed",
    "4: responder.rollout.0.then: h100: after act comes a more careful stage",
    "5: responder.rollout.1.until: a100: stage canary needs until",
    "5: responder.rollout.1.canary_nodes: a100: stage canary needs canary_nodes",
    "6: responder.rollout.2.pool: pool h100 has 2 rows",
    "7: responder.rollout.3.pool: pool a100 has 2 rows",
    "7: responder.rollout.3.untill: there is no such setting; did you mean until?",
    "9: responder.closed_times.0.cron: '0 25 * * *': bad hour",
    "9: responder.closed_times.0.tz: there is no time zone 'Mars/Base'",
    "10: responder.closed_times.1.name: none: takes either start and end",
}


def test_what_is_wrong_in_a_row_hides_nothing_that_is_wrong_between_rows(tmp_path: Path) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text(ROWS)
    with pytest.raises(ConfigError) as refused:
        load(file)
    told = [line.strip().removeprefix(f"{file}:") for line in str(refused.value).splitlines()[1:]]
    unexpected = [line for line in told if not any(line.startswith(begins) for begins in IN_ROWS)]
    missing = [begins for begins in IN_ROWS if not any(line.startswith(begins) for line in told)]
    assert (unexpected, missing, len(told)) == ([], [], len(IN_ROWS))


def test_a_key_that_is_missing_hides_no_contradiction_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text(
        "slack: {token: xoxb-1}\n"
        "notifier: {sinks: {page: {kind: pagerduty}, mail: {kind: email}}}\n"
        "responder: {rollout: [{pool: a}, {pool: b, stage: act}], lease_s: 2}\n"
    )
    with pytest.raises(ConfigError) as refused:
        load(file)
    told = [line.strip().removeprefix(f"{file}:") for line in str(refused.value).splitlines()[1:]]
    assert sorted(line.lstrip("123: ").split(": ")[0] for line in told) == [
        "notifier.sinks.page.key",
        "posts.email.host",
        "responder.lease_s",
        "responder.rollout.0.stage",
        "slack.channel",
    ]


def test_a_stage_that_has_ended_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text(
        "responder: {rollout: [{pool: h100, stage: act, until: 2020-01-01T00:00:00Z},"
        " {pool: a100, stage: act, until: 2999-01-01T00:00:00Z}]}\n"
    )
    checked = CliRunner().invoke(cli, ["--config", str(file), "config", "check"])
    assert checked.exit_code == 0
    assert checked.stderr.splitlines() == [
        "faultline: warning: responder.rollout.0.until: 2020-01-01T00:00:00Z is past: "
        "pool h100 is in stage observe, no longer in act; remove the row, or give the stage a new end",
        "faultline: warning: responder.mode: shadow, so nothing is done in a100 either, whatever responder.rollout says; "
        "set responder.mode to approve or auto once pools are to be acted on",
    ]


def test_a_password_in_a_url_is_refused_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text("jira: {base_url: 'https://me:hunter2@site'}\n")
    with pytest.raises(ConfigError, match="must not contain a user or password") as refused:
        load(file)
    assert "hunter2" not in str(refused.value)


FINE = (
    "cluster: gpu_east-1.example",
    "kafka: {bootstrap: 'a.example:9092, [::1]:9093,10.0.0.1:9094', topic_prefix: east.}",
    "kafka: {security_protocol: SASL_SSL, sasl_username: me, sasl_password: x, ssl_cafile: /ca.pem}",
    "kafka: {replication_factor: 1}",
    "http_host: '::'",
    "inventory: {job_kinds: [kubeflow.org/v2beta1/MPIJob, example.com/v1alpha1/Training, ray.io/v1alpha1/RayJob]}",
    "inventory: {protected_labels: [example.com/role=control, dedicated], leaf_labels: [topology.example/leaf]}",
    "responder: {protect: {nodes: ['gpu-*', 'login-[12]']}, approvers: ['ada|U012AB', bo@example.test]}",
    "slack: {token: xoxb-1, channel: C0INCIDENTS}",
    "jira: {base_url: 'http://standins:8092/jira', project: GPU_2}",
)


@pytest.mark.parametrize("text", FINE)
def test_what_is_right_is_taken(tmp_path: Path, text: str) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text(text)
    load(file)


def test_what_ships_is_taken(tmp_path: Path) -> None:
    shipped = yaml.safe_load((BASE / "config.yaml").read_text())
    file = tmp_path / "faultline.yaml"
    file.write_text(shipped["data"]["faultline.yaml"])
    load(file)


def test_what_settings_name_is_looked_at_before_a_start_and_all_of_it_is_told(tmp_path: Path) -> None:
    file, kubeconfig = tmp_path / "faultline.yaml", tmp_path / "kubeconfig"
    kubeconfig.write_text("contexts: [{name: east, context: {}}]\ncurrent-context: east\n")
    file.write_text(
        f"kubernetes: {{kubeconfig: {kubeconfig}, context: eats}}\n"
        "inventory: {topology_file: /nowhere/t.yaml}\n"
        "jira: {base_url: 'https://site.example'}\n"
        "responder: {runbook_dirs: [/nowhere/runbooks]}\n"
    )
    asked = CliRunner().invoke(cli, ["--config", str(file), "config", "check"])
    started = CliRunner().invoke(cli, ["--config", str(file), "run", "responder"])
    context = f"kubernetes.context: {kubeconfig} has no context eats; known are east; did you mean east?"
    for line in (
        context,
        "responder.runbook_dirs: /nowhere/runbooks",
        "jira.user: not set",
        "jira.token: not set",
    ):
        assert line in str(asked.exception)
        assert line in str(started.exception)
    assert "inventory.topology_file: cannot read /nowhere/t.yaml" in str(asked.exception)
    assert "topology_file" not in str(started.exception)
    fine = CliRunner().invoke(cli, ["--config", str(file), "config", "check", "--process", "detector"])
    assert fine.exit_code == 0


@pytest.mark.parametrize(
    ("key", "content", "said"),
    [
        ("user_file", None, "cannot read"),
        ("password_file", "", "is empty"),
        ("password_file", "hunter2\nhunter3\n", "has more than one line"),
        ("password_file", b"\xff\xfehunter2", "cannot read"),
        ("addresses_file", None, "cannot read"),
        ("addresses_file", "gpu-1: [hunter2", "cannot read"),
        ("addresses_file", "- hunter2\n", "is no mapping of node names to addresses"),
        ("addresses_file", "", "has no addresses"),
        (
            "addresses_file",
            "gpu-1: https://bmc-1\ngpu-2: https://me:hunter2@bmc-2\n",
            "no https address for gpu-2",
        ),
        ("ca_file", None, "cannot read"),
        ("ca_file", "hunter2\n", "no certificates in PEM"),
        ("ca_file", "", "no certificates in PEM"),
    ],
)
def test_a_file_for_the_bmcs_that_is_of_no_use_is_told_without_what_it_holds(
    tmp_path: Path, key: str, content: str | bytes | None, said: str
) -> None:
    files = {"user_file": "me\n", "password_file": "hunter2\n", "addresses_file": "gpu-1: https://bmc-1\n"}
    redfish = {}
    for name, text in {**files, key: content}.items():
        redfish[name] = str(tmp_path / name)
        if text is not None:
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    file = tmp_path / "faultline.yaml"
    file.write_text(yaml.safe_dump({"node_work": {"redfish": redfish}}))
    asked = CliRunner().invoke(cli, ["--config", str(file), "config", "check"])
    (line,) = [one for one in str(asked.exception).splitlines() if "node_work.redfish" in one]
    assert line.strip().startswith(f"node_work.redfish.{key}: ")
    assert said in line
    assert str(tmp_path / key) in line
    assert ": mount " in line or ": write " in line, "it says what to do"
    assert "hunter" not in str(asked.exception)


def test_login_files_of_each_node_are_looked_for_by_their_folder(tmp_path: Path) -> None:
    file = tmp_path / "faultline.yaml"
    (tmp_path / "there").mkdir()
    login = {"user_file": f"{tmp_path}/there/{{node}}.user", "password_file": f"{tmp_path}/missing/{{node}}"}
    file.write_text(yaml.safe_dump({"node_work": {"redfish": {"address": "https://{node}.bmc", **login}}}))
    asked = CliRunner().invoke(cli, ["--config", str(file), "config", "check"])
    told = [line.strip() for line in str(asked.exception).splitlines() if "node_work.redfish" in line]
    assert [line.split(": ")[0] for line in told] == ["node_work.redfish.password_file"]
