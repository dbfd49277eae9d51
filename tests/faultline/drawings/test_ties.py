"""What joins a job to the root of its incident."""

from __future__ import annotations

from faultline.drawings.ties import tie_of_job
from tests.streams.correlate.world import World, at, failed, node_fact, pods, sign


def test_a_job_that_only_complains_of_what_it_waits_for_is_joined_by_its_own_words() -> None:
    world = World(map(node_fact, ["n1", "n2", "n3"]))
    for name, node in (("llama", "n1"), ("gemma", "n2")):
        for pod in pods(name, [node], since=0):
            world.tell(pod)
    world.see(
        sign("node.condition", "n3", -60, "conntrack_full"), sign("unknown", "n3", 0, "resolver_unwell")
    )
    for name in ("llama", "gemma"):
        world.see(*(failed(name, 0, 60 + 90.0 * i, "no_resolver", peer="a.data.svc") for i in range(4)))
    world.pass_to(600, step=5)
    incident = world.only()
    assert (incident.root.key, incident.fault_at) == ("node/n3", at(60))
    assert {tie_of_job(job, incident).text for job in incident.jobs} == {
        p.summary for p in incident.proofs if p.entity.pod is not None
    }
