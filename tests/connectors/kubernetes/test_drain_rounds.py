"""Drains round by round on the emulated API server: what goes, what stays and why, and what the result says of both."""

from __future__ import annotations

import pytest

from connectors.base import AlreadyDone, Blocked, Done, NoLease, Refused, Waiting
from connectors.kubernetes.drain import EVICTIONS_A_ROUND
from connectors.kubernetes.eviction import evict
from connectors.kubernetes.pod_roles import CHECKPOINT_GRACE
from sandbox.emulated.store import NODES, PODS
from streams.model.clock import rfc3339
from tests.connectors.kubernetes.draining import NAMESPACE, NODE, draining

EXISTS = [{"operator": "Exists"}]


async def test_the_result_names_what_went_and_what_stays_and_why() -> None:
    async with draining() as world:
        world.pod("train-0")
        world.service("chat-0")
        world.pod("notebook", ownerReferences=[])
        world.budget("keep-chat", 1)
        blocked = await world.round()
        assert isinstance(blocked, Blocked)
        world.end("train-0")
        world.pass_time(30)
        blocked = await world.round()
    assert isinstance(blocked, Blocked)
    assert blocked.result["gone"] == ("team-a/train-0",)
    assert blocked.result["left"] == (
        "team-a/chat-0: PodDisruptionBudget team-a/keep-chat",
        "team-a/notebook: the lack of a controller that would recreate it",
    )
    assert (
        "PodDisruptionBudget team-a/keep-chat keeps team-a/chat-0 on gpu-07 since 12:00:00" in blocked.reason
    )
    assert "gone so far: 1" in blocked.reason


async def test_once_the_budget_lets_go_the_drain_ends_and_nothing_counts_as_left() -> None:
    async with draining() as world:
        world.service("chat-0")
        world.budget("keep-chat", 1)
        assert isinstance(await world.round(), Blocked)
        world.add(
            {
                "metadata": {"name": "chat-1", "namespace": NAMESPACE, "labels": {"app": "chat"}},
                "spec": {"nodeName": "gpu-08"},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
        )
        assert isinstance(await world.round(), Waiting)
        world.end("chat-0")
        done = await world.round()
    assert isinstance(done, Done)
    assert (done.result["gone"], done.result["left"]) == (("team-a/chat-0",), ())


@pytest.mark.parametrize(
    ("own", "asked", "given"),
    [
        (30, "600", 600),
        (30, "10m", 600),
        (3600, "600", 3600),
        (None, "2h", 7200),
        (45, "soon", 45),
        (45, "", 45),
    ],
)
async def test_a_pod_gets_the_longer_of_its_own_grace_and_what_it_asks_for_its_checkpoint(
    own: int | None, asked: str, given: int
) -> None:
    async with draining() as world:
        world.pod("train-0", annotations={CHECKPOINT_GRACE: asked})
        if own is not None:
            world.put(
                PODS, NAMESPACE, "train-0", lambda pod: pod["spec"].update(terminationGracePeriodSeconds=own)
            )
        await world.round()
        world.pass_time(given)
        assert world.there() == {"train-0": rfc3339(world.now)}


async def test_pods_behind_twenty_that_a_budget_keeps_are_evicted_in_the_next_round() -> None:
    async with draining() as world:
        for number in range(EVICTIONS_A_ROUND):
            world.service(f"chat-{number}")
        world.budget("keep-all", EVICTIONS_A_ROUND)
        world.pod("train-0")
        await world.round()
        await world.round()
        assert world.there()["train-0"] is not None


async def test_a_person_who_uncordons_between_two_evictions_stops_the_drain() -> None:
    async with draining() as world:
        for name in ("train-0", "train-1"):
            world.pod(name)
        first = world.cluster.evict

        async def and_then_uncordon(*args: str, **more: object) -> None:
            await first(*args, **more)  # type: ignore[arg-type]
            world.put(NODES, None, NODE, lambda node: node["spec"].pop("unschedulable"))

        world.cluster.evict = and_then_uncordon  # type: ignore[method-assign]
        stopped = await world.round()
        evicted = [name for name, ends in world.there().items() if ends]
    assert isinstance(stopped, Blocked)
    assert stopped.by_person
    assert "evicted before that: 1" in stopped.reason
    assert len(evicted) == 1


async def test_a_pod_made_anew_under_the_same_name_is_another_pod() -> None:
    async with draining() as world:
        old = world.pod("train-0")
        await world.round()
        world.end("train-0")
        new = world.pod("train-0")
        answer = await evict(world.cluster, old, NoLease())
        assert (answer.granted, answer.blocked) == (False, "")
        assert world.there() == {"train-0": None}
        assert new["metadata"]["uid"] != old["metadata"]["uid"]
        waiting = await world.round()
    assert isinstance(waiting, Waiting)
    assert waiting.result["gone"] == ("team-a/train-0",)
    assert waiting.result["evicted"] == 2


async def test_what_tolerates_the_cordon_and_comes_back_is_not_evicted_for_ever() -> None:
    async with draining() as world:
        world.pod("agent-1")
        world.put(PODS, NAMESPACE, "agent-1", lambda pod: pod["spec"].update(tolerations=EXISTS))
        assert isinstance(await world.round(), Waiting)
        world.end("agent-1")
        world.pod("agent-2")
        world.put(PODS, NAMESPACE, "agent-2", lambda pod: pod["spec"].update(tolerations=EXISTS))
        blocked = await world.round()
        assert world.there() == {"agent-2": None}
    assert isinstance(blocked, Blocked)
    assert "toleration of the cordon" in blocked.by


@pytest.mark.parametrize("protected", [False, True])
@pytest.mark.parametrize(
    "annotation",
    [
        {"karpenter.sh/do-not-disrupt": "true"},
        {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    ],
)
async def test_what_others_protect_goes_only_where_the_runbook_says_so(
    annotation: dict[str, str], protected: bool
) -> None:
    async with draining(protected=protected) as world:
        world.pod("train-0", annotations=annotation)
        outcome = await world.round()
        assert (world.there()["train-0"] is not None) is protected
    if not protected:
        assert isinstance(outcome, Blocked)
        assert outcome.by == f"the annotation {next(iter(annotation))}"


async def test_a_stuck_pod_is_told_with_what_holds_it() -> None:
    async with draining() as world:
        world.pod("train-0", finalizers=["example.com/checkpoint"])
        await world.round()
        world.pass_time(60)
        waiting = await world.round()
    assert isinstance(waiting, Waiting)
    assert (
        "team-a/train-0 stuck Terminating since 12:00:30: finalizer example.com/checkpoint" in waiting.detail
    )
    assert waiting.result["left"] == (
        "team-a/train-0: stuck Terminating since 12:00:30: finalizer example.com/checkpoint",
    )


async def test_a_crash_between_two_evictions_is_continued_and_told_in_full() -> None:
    async with draining() as world:
        for name in ("train-0", "train-1", "train-2"):
            world.pod(name)
        first, calls = world.cluster.evict, []

        async def once(*args: str, **more: object) -> None:
            calls.append(args)
            if len(calls) > 1:
                raise KeyboardInterrupt
            await first(*args, **more)  # type: ignore[arg-type]

        world.cluster.evict = once  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            await world.round()
        world.cluster.evict = first  # type: ignore[method-assign]
        assert world.prior == {}
        assert isinstance(await world.look(), Waiting)
        waiting = await world.round()
        assert all(world.there().values())
        for name in ("train-0", "train-1", "train-2"):
            world.end(name)
        done = await world.round()
    assert isinstance(waiting, Waiting)
    assert isinstance(done, Done)
    assert done.result["gone"] == ("team-a/train-0", "team-a/train-1", "team-a/train-2")


async def test_wrong_parameters_are_refused_before_anything_is_asked() -> None:
    async with draining(local_data="some") as world:
        world.pod("train-0")
        refused = await world.round()
        assert world.there() == {"train-0": None}
    assert isinstance(refused, Refused)
    assert "known are keep and scratch and all" in refused.reason


async def test_an_empty_node_is_done_at_once() -> None:
    async with draining() as world:
        assert isinstance(await world.round(), AlreadyDone)
