"""What must be true after every story that closes a node, whatever died on the way: everything was done, and once."""

from __future__ import annotations

from streams.model.incident import Incident
from tests.end_to_end.installation import Installation
from tests.end_to_end.training import PODS, Training
from tests.testbed.waiting import eventually


async def done_once(installation: Installation, training: Training, incident: Incident, since: int) -> None:
    """One incident, run, cordon, suspend, resume, ticket and root message; the job runs on other nodes."""
    bad = incident.root.node
    assert bad is not None
    assert training.name in map(str, incident.jobs)
    told = await installation.incidents()
    assert [i.id for i in told] == [incident.id], "\n".join(
        f"{i.id}#{i.revision} {i.state} {i.family} {i.root}: {i.reason}" for i in told
    )
    (run,) = await installation.runs(incident)
    assert run.state.value == "succeeded"

    after = training.placed()
    assert len(after) == PODS
    assert bad not in after.values()
    assert training.closed() == [bad]

    writes = training.writes(since)
    assert [(w.name, w.code) for w in writes if w.resource == "nodes"] == [(bad, 200)]
    assert training.switched(since) == [True, False]
    assert {w.code for w in writes if w.resource == training.resource} == {200}

    (issue,) = installation.jira.issues
    assert bad in issue.summary
    assert len([r for r in installation.jira.calls("/issue", "POST") if r.path.endswith("/issue")]) == 1
    await thread_says_contained(installation)
    (root,) = installation.slack.roots()
    assert bad in root.text
    posted = [r.body for r in installation.slack.calls("chat.postMessage") if isinstance(r.body, dict)]
    assert len([body for body in posted if not body.get("thread_ts")]) == 1


async def thread_says_contained(installation: Installation) -> None:
    """Wait until a root message says that nothing is left of its incident but a node that waits for its repair."""

    async def contained() -> bool:
        installation.revive()
        return any("contained" in root.text.lower() for root in installation.slack.roots())

    await eventually(contained, "the thread's root says that the incident is contained")
