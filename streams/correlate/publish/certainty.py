"""What makes a likely root certain: that a job suffers from it, or that it lasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.sightings import Sighting
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily


def settled(h: Hypothesis, claims: Mapping[str, Sequence[Sighting]], now: datetime) -> Hypothesis:
    """The hypothesis as certain as it is by now. `claims` are the symptoms that follow from it, by job.

    What lasted long enough without anything that tells otherwise is certain.
    """
    h = _strengthened(h, claims)
    if h.sure_at is None or h.sure_at > now or h.certainty is not Certainty.LIKELY:
        return h
    return replace(h, certainty=Certainty.DECISIVE, why=f"{h.why}; and {h.sure}")


def _strengthened(h: Hypothesis, claims: Mapping[str, Sequence[Sighting]]) -> Hypothesis:
    """What a job suffers makes likely roots certain: a kubelet may only be restarting, a NIC may only be slow, but not then."""
    suffering = sorted(
        job for job, symptoms in claims.items() if any(s.kind.startswith("nccl.") for s in symptoms)
    )
    if not suffering or h.certainty is not Certainty.LIKELY:
        return h
    if h.family == IncidentFamily.NODE_DOWN:
        why = (
            f"{h.why}; and its ranks are silent while those of {suffering[0].partition('/')[2]} wait for them"
        )
        return replace(h, certainty=Certainty.DECISIVE, why=why)
    lost = (
        h.family == IncidentFamily.NIC_LINK
        and h.facts.get("hard") is True
        and _suffers_then(h, claims, suffering)
    )
    # Of several hosts that pause at once none is blamed for it: they may share a cause (`pfc_storms.weigh`).
    stormy = h.family == IncidentFamily.PFC_STORM and h.rule in ("pause sent", "access port")
    if lost or (stormy and h.facts.get("shared_nodes") == 1):
        why = f"{h.why}; and {len(suffering)} job(s) fail on the network meanwhile"
        return replace(h, certainty=Certainty.DECISIVE, why=why)
    return h


def _suffers_then(h: Hypothesis, claims: Mapping[str, Sequence[Sighting]], suffering: Sequence[str]) -> bool:
    """Whether ranks began to wait or to fail when the link was lost, and not at some time while it was."""
    since, until = h.fault_at - timedelta(minutes=1), h.last_at + timedelta(minutes=5)
    return any(
        since <= s.fault_at <= until for job in suffering for s in claims[job] if s.kind.startswith("nccl.")
    )
