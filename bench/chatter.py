"""What a GPU cluster says all day: ordinary lines of kernels, kubelets, switches and training jobs, and now and then a fault.

`ordinary(seed)` never says anything that is a signal; `faults(seed)` says only such things, each about another place unless
`places` is small. Shapes are those of real programs, names are invented.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice

LINE_BYTES = 210

_APPS = (
    "trainer",
    "tokenizer",
    "node-exporter",
    "dcgm-exporter",
    "cilium",
    "csi-lustre",
    "fluent-bit",
    "web",
)
_PATHS = ("/api/v1/nodes", "/healthz", "/v2/models/llm/infer", "/metrics", "/readyz", "/apis/batch/v1/jobs")
_BUSES = ("07", "0f", "47", "4e", "87", "90", "b7", "bd")

_BLANK = re.compile(r"<([a-z]+)(\d*)>")
_FILLERS: dict[str, Callable[[random.Random, int], str]] = {
    "d": lambda r, digits: str(r.randrange(10**digits)),
    "z": lambda r, digits: f"{r.randrange(10**digits):0{digits}d}",
    "x": lambda r, digits: f"{r.randrange(16**digits):0{digits}x}",
    "n": lambda r, below: str(r.randrange(below)),
    "f": lambda r, _: f"{r.random() * 9:.4f}",
    "ip": lambda r, _: f"10.{r.randrange(256)}.{r.randrange(256)}.{r.randrange(1, 255)}",
    "mac": lambda r, _: ":".join(f"{r.randrange(256):02x}" for _ in range(6)),
    "app": lambda r, _: r.choice(_APPS),
    "path": lambda r, _: r.choice(_PATHS),
    "pod": lambda r, _: (
        f"{r.choice(_APPS)}-{r.randrange(16**9):09x}-{r.choice('bcdfghjklm')}{r.randrange(16**4):04x}"
    ),
    "uid": lambda r, _: (
        f"{r.randrange(16**8):08x}-{r.randrange(16**4):04x}-4{r.randrange(16**3):03x}-a{r.randrange(16**3):03x}-"
        f"{r.randrange(16**12):012x}"
    ),
    "pci": lambda r, _: f"0000:{r.choice(_BUSES)}:00",
}
"""What a blank of a template stands for; its number is how many digits, or the number to stay below (`n`)."""

ORDINARY: tuple[tuple[str, str], ...] = (
    ("kernel", "eth<n4>: renamed from veth<x6>"),
    ("kernel", "cali<x10>: entered promiscuous mode"),
    ("kernel", "IPv6: ADDRCONF(NETDEV_CHANGE): veth<x6>: becomes ready"),
    (
        "kernel",
        'audit: type=1400 audit(<d9>.<z3>:<d4>): apparmor="STATUS" operation="profile_load" profile="unconfined" '
        'name="cri-<d2>" pid=<d6>',
    ),
    (
        "kernel",
        "IN=eth0 OUT= MAC=<mac> SRC=<ip> DST=<ip> LEN=<n1500> TOS=0x00 PREC=0x00 TTL=63 ID=<n65536> DF PROTO=TCP SPT=<n65536> "
        "DPT=443 WINDOW=64240 RES=0x00 SYN",
    ),
    ("kernel", "docker0: port <n9>(veth<x6>) entered forwarding state"),
    ("kernel", "EXT4-fs (nvme<n8>n1p1): mounted filesystem with ordered data mode. Opts: (null)"),
    (
        "kernel",
        "perf: interrupt took too long (<z4> > 2500), lowering kernel.perf_event_max_sample_rate to <d5>",
    ),
    ("kernel", "nvidia-nvlink: Nvlink Core is being initialized, major device number <n250>"),
    ("kernel", "mlx5_core 0000:<x2>:00.0: firmware version: 28.<n45>.<z4>"),
    ("kernel", "nvme nvme<n8>: 64/0/0 default/read/poll queues"),
    (
        "kubelet[2211]",
        'I1121 07:13:13.<z6>    2211 reconciler_common.go:245] "operationExecutor.VerifyControllerAttachedVolume started for '
        'volume \\"kube-api-access-<x5>\\"" pod="team-a/<pod>"',
    ),
    (
        "kubelet[2211]",
        'I1121 07:13:13.<z6>    2211 kubelet.go:2431] "SyncLoop (PLEG): event for pod" pod="team-b/<pod>" '
        'event={"ID":"<uid>","Type":"ContainerStarted","Data":"<x16>"}',
    ),
    (
        "kubelet[2211]",
        'E1121 07:13:13.<z6>    2211 pod_workers.go:1298] "Error syncing pod, skipping" err="failed to \\"StartContainer\\" for '
        '\\"<app>\\" with CrashLoopBackOff" pod="team-c/<pod>" podUID="<uid>"',
    ),
    (
        "containerd[1180]",
        'time="2026-11-21T07:13:13.<z9>Z" level=info msg="StopPodSandbox for \\"<x32>\\" returns successfully"',
    ),
    (
        "containerd[1180]",
        'time="2026-11-21T07:13:13.<z9>Z" level=warning msg="cleaning up after shim disconnected" id=<x32> namespace=k8s.io',
    ),
    ("systemd[1]", "Started Session <d5> of User ubuntu in user-1000.slice."),
    (
        "systemd[1]",
        "run-containerd-io.containerd.runtime.v2.task-k8s.io-<x24>-rootfs.mount: Deactivated successfully.",
    ),
    ("sshd[40112]", "Accepted publickey for ops from <ip> port <n65536> ssh2: ED25519 SHA256:<x20>"),
    ("sshd[40112]", "Connection closed by <ip> port <n65536> [preauth]"),
    (
        "CRON[77120]",
        "(root) CMD (test -x /usr/bin/collect && /usr/bin/collect --since <d4> --out /var/lib/collect/<d3>)",
    ),
    ("chronyd[911]", "Selected source <ip> offset <f> milliseconds, frequency <f> ppm"),
    (
        "dockerd[1302]",
        'level=info msg="ignoring event" container=<x24> module=libcontainerd topic=/tasks/delete',
    ),
    (
        "haproxy[3320]",
        "<ip>:<n65536> [21/Nov/2026:07:13:13.<z3>] https~ api/<app> 0/0/<n9>/<n99>/<n200> 200 <d5> - - ---- "
        '"GET <path> HTTP/1.1"',
    ),
    ("nginx[512]", '<ip> - - "POST <path> HTTP/2.0" 201 <d5> "-" "python-httpx/0.28"'),
    (
        "cilium-agent[8810]",
        'level=info msg="Identity of endpoint changed" endpointID=<d4> identity=<d5> ipv4=<ip> k8sPodName=team-d/<pod>',
    ),
    (
        "trainer[90210]",
        "[rank<n512>] INFO checkpoint shard <n64> of 64 written to /lustre/ckpt/run-<d3> in <f> s (<f> GB/s)",
    ),
    (
        "trainer[90210]",
        "gpu<z2>:<d5>:<d5> [<n8>] NCCL INFO Channel <z2>/0 : <n512>[<n8>] -> <n512>[<n8>] via P2P/CUMEM/read",
    ),
    (
        "trainer[90210]",
        "gpu<z2>:<d5>:<d5> [<n8>] NCCL INFO comm 0x<x12> rank <n512> nranks 512 cudaDev <n8> - Init COMPLETE",
    ),
    ("trainer[90210]", "loss=<f> grad_norm=<f> lr=3.0e-04 tokens/s=<d6> mem=<n80>GiB"),
    ("nvidia-persistenced[1440]", "device <pci>.0 - persistence mode enabled."),
    ("nv-hostengine[2040]", "DCGM initialized; watching <n64> fields on 8 GPUs every 10 s"),
    (
        "nvidia-fabricmanager[1610]",
        "[INFO] [tid <d4>] Successfully configured all the available NVSwitches to route traffic.",
    ),
    ("opensm[2780]", "<x6> 0x02 -> SUBNET UP port 0x<x16>"),
    ("lldpd[980]", "neighbour leaf-<n64> port Ethernet<n256> seen on mlx5_<n8> ttl 120 mgmt <ip>"),
    ("auditd[800]", "USER_ACCT pid=<d6> uid=0 auid=<d4> ses=<d4> res=success terminal=cron"),
    ("dnsmasq[1101]", "query[A] <pod>.team-a.svc.cluster.local from <ip> cached <ip> id <n65536>"),
    ("smartd[705]", "Device: /dev/nvme<n8>, SMART Prefailure Attribute: 190 changed from <n90> to <n90>"),
    ("slurmd[3021]", "launch task StepId=<d6>.0 request from UID:<d4> GID:<d4> HOST:<ip> PORT:<n65536>"),
    (
        "etcd[1400]",
        '{"level":"info","msg":"finished scheduled compaction","compact-revision":<d8>,"took":"<f>ms"}',
    ),
)
"""Who writes it, and what."""

FAULTS: tuple[tuple[str, str], ...] = (
    (
        "kernel",
        "NVRM: Xid (PCI:<pci>): 31, pid=<d6>, name=python3, Ch 000000<z2>, intr 00000000. MMU Fault: ENGINE GRAPHICS "
        "GPC<n8> GPCCLIENT_T1_<n9> faulted @ 0x7f<x2>_c0000000.",
    ),
    ("kernel", "NVRM: Xid (PCI:<pci>): 79, pid=<d6>, name=python3, GPU has fallen off the bus."),
    (
        "kernel",
        "NVRM: Xid (PCI:<pci>): 63, pid=<d6>, name=python3, Row Remapper: New row (0x<x16>) marked for remapping, "
        "reset gpu to activate.",
    ),
    (
        "kernel",
        "NVRM: Xid (PCI:<pci>): 94, pid=<d6>, name=python3, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    ),
    (
        "kernel",
        "NVRM: Xid (PCI:<pci>): 74, pid=<d6>, name=python3, NVLink: fatal error detected on link <n18>"
        "(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    ),
    ("kernel", "NVRM: GPU <pci>.0: GPU has fallen off the bus."),
    (
        "trainer[90210]",
        "[rank5]:[E1121 07:13:13.<z9> ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank 5] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=<d6>, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, "
        "Timeout(ms)=600000) ran for 600<z3> milliseconds before timing out.",
    ),
)
"""Who reports it, and how."""

_TAILS = (" request_id=<uid>", " trace=<x16>", " node_ip=<ip>", " pod=<pod>")


def _filled(template: str, r: random.Random) -> str:
    return _BLANK.sub(lambda blank: _FILLERS[blank[1]](r, int(blank[2] or 0)), template)


def _stretched(text: str, r: random.Random, length: int) -> str:
    while len(text) < length:
        text += _filled(r.choice(_TAILS), r)
    return text[:length]


def ordinary(seed: int, begin: datetime) -> Iterator[bytes]:
    """Lines of 210 bytes without end: two thirds syslog, the rest Fluent Bit's JSON of the journal and of /dev/kmsg."""
    r = random.Random(seed)
    at = begin
    while True:
        at += timedelta(milliseconds=r.randrange(3))
        program, template = r.choice(ORDINARY)
        yield _wrapped(r, at, f"gpu-{r.randrange(2048):04d}", program, _filled(template, r), LINE_BYTES)


def faults(seed: int, begin: datetime, places: int) -> Iterator[bytes]:
    """Reports without end, of `places` nodes in turn, as long as they are: also 210 bytes in the mean."""
    r = random.Random(seed)
    number, at = 0, begin
    while True:
        at += timedelta(milliseconds=r.randrange(3))
        program, template = FAULTS[number % len(FAULTS)]
        yield _wrapped(r, at, f"gpu-{number % places:06d}", program, _filled(template, r))
        number += 1


def _wrapped(
    r: random.Random, at: datetime, host: str, program: str, words: str, length: int | None = None
) -> bytes:
    """The message as shippers deliver it, made `length` bytes long if that is given."""
    kernel = program == "kernel"
    way = r.random()
    if way < 0.66:
        clock = _filled("[<d7>.<z6>] ", r) if kernel else ""
        text = f"{at:%b %d %H:%M:%S} {host} {program}: {clock}{words}"
        return (_stretched(text, r, length) if length else text).encode()
    if kernel and way < 0.85:
        origin = _filled('"priority":6,"sequence":<d6>,"sec":<d7>,"usec":<d6>', r)
        head, tail = f'{{"@timestamp":{at.timestamp():.6f},{origin},"msg":"', f'","host":"{host}"}}'
    else:
        name = program.partition("[")[0]
        head = f'{{"date":{at.timestamp():.6f},"MESSAGE":"'
        tail = f'","_HOSTNAME":"{host}","SYSLOG_IDENTIFIER":"{name}"}}'
    words = words.replace("\\", "").replace('"', "'")
    return (
        head + (_stretched(words, r, length - len(head) - len(tail)) if length else words) + tail
    ).encode()


def mixed(
    seed: int, count: int, share: float, *, begin: datetime, places: int = 10**6, pool: int = 50_000
) -> Iterator[bytes]:
    """`count` lines, of which about `share` are reports, at positions that chance chooses.

    Ordinary lines come again after `pool` of them: writing them all anew would take longer than reading them.
    """
    r = random.Random(seed)
    usual = cycle(list(islice(ordinary(seed, begin), pool)))
    reports = faults(seed, begin, places)
    for _ in range(count):
        yield next(reports if r.random() < share else usual)


def samples(
    seed: int, count: int, *, begin: datetime, changing: float = 0.001, nodes: int = 64
) -> Iterator[bytes]:
    """DCGM series as prometheus-kafka-adapter writes them, scrape after scrape of nodes with eight GPUs.

    `changing` is the share of XID gauges that change, which is what a signal is.
    """
    r = random.Random(seed)
    written, scrape, xids = 0, 0, dict[tuple[int, int], int]()
    while True:
        at = begin + timedelta(seconds=15 * scrape)
        for node in range(nodes):
            for gpu in range(8):
                for name, value in _fields(r):
                    if name == "DCGM_FI_DEV_XID_ERRORS":
                        if scrape and r.random() < changing:
                            xids[node, gpu] = r.choice((13, 31, 43, 63, 79, 94))
                        value = xids.get((node, gpu), 0)
                    if written >= count:
                        return
                    written += 1
                    yield _sample(r, at, name, value, node, gpu)
        scrape += 1


def _fields(r: random.Random) -> Iterator[tuple[str, float]]:
    yield "DCGM_FI_DEV_SM_CLOCK", r.randrange(1900, 1980)
    yield "DCGM_FI_DEV_MEM_CLOCK", 2619
    yield "DCGM_FI_DEV_GPU_TEMP", r.randrange(40, 70)
    yield "DCGM_FI_DEV_MEMORY_TEMP", r.randrange(50, 80)
    yield "DCGM_FI_DEV_POWER_USAGE", r.randrange(300, 690)
    yield "DCGM_FI_DEV_GPU_UTIL", r.randrange(85, 101)
    yield "DCGM_FI_DEV_FB_USED", r.randrange(50000, 70000)
    yield "DCGM_FI_DEV_FB_FREE", 9000
    yield "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 0
    yield "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", r.randrange(10**9)
    yield "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", r.random()
    yield "DCGM_FI_DEV_XID_ERRORS", 0


def _sample(r: random.Random, at: datetime, name: str, value: float, node: int, gpu: int) -> bytes:
    host = f"gpu-{node:04d}"
    return (
        f'{{"labels":{{"DCGM_FI_DRIVER_VERSION":"580.95.05","Hostname":"{host}","UUID":"GPU-{node:08x}-0000-4000-8000-{gpu:012x}",'
        f'"__name__":"{name}","device":"nvidia{gpu}","gpu":"{gpu}","instance":"{host}:9400","job":"dcgm-exporter",'
        f'"modelName":"NVIDIA H100 80GB HBM3","pci_bus_id":"00000000:{gpu * 16 + 7:02X}:00.0"}},"name":"{name}",'
        f'"timestamp":"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}","value":"{value:g}"}}'
    ).encode()
