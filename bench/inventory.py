"""What the inventory works for a large cluster, without a server: `bench/inventory.py [--nodes N] [--pods N] [--quick]`.

Objects are those of `bench/api.py` with what an API server adds (uid, managed fields), in pages of 500 as a list returns them;
Jobs, nodes and pods come side by side. Figures are CPU time of this process, so that other work beside it matters little.

Figures:
  `decode_cpu_s`      JSON of all pages to objects
  `learn_cpu_s`       objects to facts
  `settle_cpu_s`, `encode_cpu_s`   what is told at the end of the lists, and its bytes
  `changed_cpu_s`     `--changed` pods that end at once: the facts and their bytes
  `again_cpu_s`       all lists once more, as after `410 Gone`: decoding, learning, nothing to tell
  `object_us`         the first four together, for one object
  `rss_mb`, `rss_peak_mb`   memory after the lists and the most it has had, less what the generated pages take
"""

from __future__ import annotations

import argparse
import gc
import resource
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice, zip_longest
from pathlib import Path
from time import process_time
from typing import Any

import orjson

from bench.api import NAMESPACE, NOW, PODS_OF_A_JOB, RUNNING, node, pod
from bench.figures import Figure, report
from connectors.kubernetes.client import Object
from streams.inventory.cluster_inventory import FactChange, Inventory
from streams.model.codec import encode
from streams.model.garbage import collect_seldom
from streams.model.watch import KindListed, ObjectChange
from tests.testbed import workloads

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
PAGE = 500
KINDS = ("batch/v1/Job", "v1/Node", "v1/Pod")


def served(obj: Object, number: int, uid: str = "") -> Object:
    """The object as a server returns it in a list."""
    about = obj["metadata"]
    about |= {
        "uid": uid or f"00000000-0000-4000-8000-{number:012}",
        "resourceVersion": str(1_000_000 + number),
        "creationTimestamp": NOW,
        "managedFields": [
            {"manager": name, "operation": "Update", "apiVersion": "v1", "time": NOW, "fieldsType": "FieldsV1",
             "fieldsV1": {f"f:{part}": {f"f:{key}": {} for key in obj.get(part) or {}} for part in obj if part != "kind"}}
            for name in ("kube-controller-manager", "kubelet")
        ],
    }  # fmt: skip
    return obj


def jobs_of(pods: int) -> list[Object]:
    """The Jobs, of 64 pods each."""
    made = (
        workloads.indexed_job(f"train-{n}", NAMESPACE, pool="train", pods=PODS_OF_A_JOB, gpus=1)
        for n in range(pods // PODS_OF_A_JOB)
    )
    return [served(job, n, f"uid-of-job-{n}") for n, job in enumerate(made)]


def pods_of(jobs: list[Object], nodes: int) -> Iterator[Object]:
    """Their pods."""
    for number in range(len(jobs) * PODS_OF_A_JOB):
        thing = pod(number, jobs[number // PODS_OF_A_JOB], nodes)
        thing["metadata"]["namespace"] = NAMESPACE
        yield served({**thing, **RUNNING}, number)


def pages(kind: str, objects: Iterator[Object]) -> list[bytes]:
    """A list as the server returns it."""
    api_version, _, name = kind.rpartition("/")
    made = []
    while items := list(islice(objects, PAGE)):
        made.append(orjson.dumps({"kind": f"{name}List", "apiVersion": api_version, "items": items}))
    return made


class Lists:
    """All lists, in pages, and what decoding them and learning of them took."""

    def __init__(self, nodes: int, pods: int) -> None:
        jobs = jobs_of(pods)
        self.objects = nodes + len(jobs) * (PODS_OF_A_JOB + 1)
        self._pages = (
            pages(KINDS[0], iter(jobs)),
            pages(KINDS[1], (served(node(n), n) for n in range(nodes))),
            pages(KINDS[2], pods_of(jobs, nodes)),
        )
        self.decode_cpu_s = self.learn_cpu_s = 0.0

    @property
    def size(self) -> int:
        """Bytes of all pages."""
        return sum(len(page) for of_kind in self._pages for page in of_kind)

    def into(self, inventory: Inventory) -> list[FactChange]:
        """Everything once, the kinds side by side; returns what is told."""
        told: list[FactChange] = []
        names: list[set[tuple[str, str]]] = [set() for _ in KINDS]
        for row in zip_longest(*self._pages):
            for number, raw in enumerate(row):
                if raw is None:
                    continue
                begun = process_time()
                page = orjson.loads(raw)
                decoded = process_time()
                kind, api_version = page["kind"].removesuffix("List"), page["apiVersion"]
                for item in page["items"]:
                    item.setdefault("kind", kind)
                    item.setdefault("apiVersion", api_version)
                    about = item["metadata"]
                    names[number].add((about.get("namespace") or "", about["name"]))
                    told += inventory.apply(ObjectChange(AT, "ADDED", item))
                del page
                self.decode_cpu_s += decoded - begun
                self.learn_cpu_s += process_time() - decoded
        for kind, named in zip(KINDS, names, strict=True):
            begun = process_time()
            told += inventory.apply(KindListed(AT, kind, frozenset(named)))
            self.learn_cpu_s += process_time() - begun
        return told

    def ended(self, count: int) -> list[bytes]:
        """Events of as many pods that end, spread over all jobs."""
        everything = [pod for page in self._pages[2] for pod in orjson.loads(page)["items"]]
        chosen = everything[:: max(1, len(everything) // count)][:count]
        for one in chosen:
            one |= {"kind": "Pod", "apiVersion": "v1", "status": {**one["status"], "phase": "Failed"}}
        return [orjson.dumps({"type": "MODIFIED", "object": one}) for one in chosen]


def taking(work: Callable[[], Any]) -> float:
    """The CPU time that something takes, in seconds."""
    begun = process_time()
    work()
    return process_time() - begun


def resident_mb() -> float:
    """Memory of this process now."""
    fields = Path("/proc/self/statm").read_text(encoding="utf-8").split()
    return int(fields[1]) * resource.getpagesize() / 2**20


def measure(nodes: int, pods: int, changed: int) -> dict[str, Figure]:
    """All of it once."""
    lists = Lists(nodes, pods)
    gc.collect()
    before = resident_mb()
    collect_seldom()
    inventory = Inventory("c1")
    lists.into(inventory)
    decode_s, learn_s = lists.decode_cpu_s, lists.learn_cpu_s
    told: list[FactChange] = []
    settle_s = taking(lambda: told.extend(inventory.settle()))
    encode_s = taking(lambda: [encode(record) for _, record in told if record])
    facts = len(told)
    told.clear()
    collect_seldom()
    rss_mb = resident_mb() - before
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    events = lists.ended(changed)

    def change() -> None:
        for raw in events:
            event = orjson.loads(raw)
            for _, record in inventory.apply(ObjectChange(AT, event["type"], event["object"])):
                if record:
                    encode(record)

    changed_s = taking(change)
    again_s = taking(lambda: lists.into(inventory))
    return {
        "decode_cpu_s": decode_s,
        "learn_cpu_s": learn_s,
        "settle_cpu_s": settle_s,
        "encode_cpu_s": encode_s,
        "object_us": (decode_s + learn_s + settle_s + encode_s) / lists.objects * 1e6,
        "changed_cpu_s": changed_s,
        "again_cpu_s": again_s,
        "rss_mb": rss_mb,
        "rss_peak_mb": peak_mb,
        "json_mb": lists.size / 2**20,
        "facts": facts,
        "objects": lists.objects,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The inventory's own work for a large cluster.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--changed", type=int, default=2_000)
    parser.add_argument("--quick", action="store_true", help="2,000 nodes and 10,000 pods")
    options = parser.parse_args()
    nodes, pods = (2_000, 10_000) if options.quick else (options.nodes, options.pods)
    report(measure(nodes, pods, options.changed), packages=("orjson",))


if __name__ == "__main__":
    main()
