"""What a document tells of a channel that was broken when the process before this one ended."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from faultline.chat.trouble_notice import broken_before, trouble_id
from streams.model.run import EffectRecord, EffectState, Target
from streams.model.thread import ROOT, Post, Thread

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def told(state: EffectState, mark: str) -> Thread:
    sent = EffectRecord("k", "post_message", Target("Channel", "C0OPS"), state, NOW, NOW, attempts=1)
    name = trouble_id("C0VISION", 1)
    return Thread(name, "west", "C0OPS", NOW, NOW, posts=(Post(ROOT, sent, mark=mark),))


@pytest.mark.parametrize(
    ("state", "mark", "broken"),
    [
        (EffectState.CONFIRMED, "broken", True),
        (EffectState.INTENDED, "", True),
        (EffectState.UNKNOWN, "", True),
        (EffectState.REFUSED, "", False),
        (EffectState.CONFIRMED, "mended", False),
    ],
)
def test_a_message_that_may_stand_says_that_the_channel_is_broken(
    state: EffectState, mark: str, broken: bool
) -> None:
    """A process that ends between the call and its note leaves a message that nobody would take back."""
    trouble = broken_before(told(state, mark))
    assert (trouble is not None) is broken
    assert trouble is None or trouble.channel == "C0VISION"
