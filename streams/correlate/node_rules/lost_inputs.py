"""What a host reports of its power inputs: that one of them is lost, and whether that is all."""

from __future__ import annotations

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.sightings import Sighting
from streams.model.kinds import IncidentFamily, SignalKind


def is_of_input(s: Sighting) -> bool:
    """Whether it reports a supply without input, or supplies that are not redundant."""
    return s.kind == SignalKind.NODE_POWER and s.text("subtype") in part_policy().inputs.subtypes


def is_lost_input(h: Hypothesis) -> bool:
    """Whether a host reports a supply without input, or that its supplies are not redundant, whatever else it reports."""
    return h.family == IncidentFamily.POWER_COOLING and any(map(is_of_input, h.causes))


def still_has_power(h: Hypothesis) -> bool:
    """Whether a host reports nothing worse of its power than a lost input: it runs on with the others."""
    return h.family == IncidentFamily.POWER_COOLING and bool(h.causes) and all(map(is_of_input, h.causes))
