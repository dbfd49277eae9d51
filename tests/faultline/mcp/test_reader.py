"""The reader behind the tools: while Kafka is away no answer passes for one of the present."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faultline.live_view.view import LiveView
from faultline.mcp import server
from faultline.mcp.server import Reader
from streams.config.settings import KafkaSettings
from streams.model.errors import Unreachable


async def test_what_was_read_before_an_outage_is_no_answer_until_all_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries, again, is_back, caught_up = 0, asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def follow(_: KafkaSettings, view: LiveView, **__: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            view.ready = True
            raise Unreachable("Kafka does not answer")
        again.set()
        await is_back.wait()
        view.ready = True
        caught_up.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(server, "follow", follow)
    monkeypatch.setattr(server, "_TRY_AGAIN_S", 0.0)
    reader = Reader(KafkaSettings(), LiveView())
    running = asyncio.create_task(reader.run())
    await again.wait()
    with pytest.raises(Unreachable, match="Kafka does not answer"):
        await reader.ready()
    is_back.set()
    await caught_up.wait()
    await reader.ready()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
