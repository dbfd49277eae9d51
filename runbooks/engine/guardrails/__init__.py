"""May this step be taken now? Small stages of one shape; their order is the policy and is read in `STAGES` of `policy.py`.

Each stage looks at one `Case` and returns None (nothing against it) or a `Ruling` that names the rule, the numbers, and what
would lift it. Only destructive steps are limited: what gives something back always flows. The limits on how much may be under
action are checked for the whole run before its first destructive step, so that a run that has begun can finish: a job must not
stay suspended because a window is full. What a revision of the incident adds to a run has to pass them anew.
"""

from __future__ import annotations

from runbooks.engine.guardrails.context import Case, Kind, Ruling
from runbooks.engine.guardrails.policy import STAGES, judge, switched_off

__all__ = ["STAGES", "Case", "Kind", "Ruling", "judge", "switched_off"]
