"""No delivery makes the gateway answer 500: not a proven one of the oddest shape, not bytes that are no HTTP."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultline.gateway.hooks import HOOKS
from tests.effort import tries
from tests.faultline.gateway import deliveries, serving
from tests.faultline.gateway.serving import Served, bearer

pytestmark = pytest.mark.embedded

KNOWN = {200, 400, 401, 403, 404, 405, 408, 413, 415, 429, 503}

SHAPES: dict[str, list[Any]] = {
    "alertmanager": [deliveries.alert_group(2)],
    "events": [deliveries.cloudevent(), [deliveries.cloudevent()], {"message": "hot"}],
    "pagerduty": [
        deliveries.pagerduty(),
        deliveries.pagerduty("incident.resolved"),
        deliveries.pagerduty_note(),
    ],
    "jira": [deliveries.jira_closed(), deliveries.jira_comment()],
    "servicenow": [deliveries.servicenow(), deliveries.servicenow("commented")],
}

NUMBERS = st.one_of(
    st.integers(),
    st.floats(allow_nan=False),
    st.sampled_from([0, -1, 1e308, 2**63, 253402300800, 253402300800000, -62135596801]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    st.text(max_size=20),
    st.sampled_from(["", "\x00", "0001-01-01T00:00:00Z", "9" * 400]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
MEDIA = st.sampled_from(
    [
        "application/json",
        "application/cloudevents+json",
        "application/cloudevents-batch+json",
        "text/plain",
        "application/octet-stream",
        "",
        ";",
        "application/json;charset=\xff",
        "é/+json",
    ]
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in a document."""
    found = [path]
    if isinstance(document, dict):
        for key, value in document.items():
            found += places(value, (*path, key))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            found += places(value, (*path, number))
    return found


@st.composite
def changed(draw: st.DrawFn, name: str) -> bytes:
    """A delivery as it should be, with some of its parts replaced or missing."""
    document = copy.deepcopy(draw(st.sampled_from(SHAPES[name])))
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(places(document)))
        if not path:
            document = draw(VALUES)
            continue
        holder = document
        for part in path[:-1]:
            holder = holder[part]
        if draw(st.booleans()):
            holder[path[-1]] = draw(VALUES)
        else:
            del holder[path[-1]]
    try:
        return orjson.dumps(document)
    except TypeError:
        return repr(document).encode("utf-8", "replace")


@st.composite
def requests(draw: st.DrawFn, name: str) -> tuple[bytes, dict[str, str]]:
    body = draw(st.one_of(changed(name), st.binary(max_size=64)))
    media = draw(st.one_of(st.just("application/json"), MEDIA))
    headers = {"Content-Type": media.encode("utf-8").decode("latin-1")}
    headers |= draw(
        st.dictionaries(
            st.sampled_from(
                ["ce-specversion", "ce-id", "ce-type", "ce-source", "ce-time", "ce-x", "ce-data"]
            ),
            st.text(
                st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), max_size=12
            ),
            max_size=4,
        )
    )
    kinds = {
        "a": bearer(),
        "b": serving.standard(body),
        "c": serving.pagerduty(body),
        "d": serving.jira(body),
    }
    return body, headers | kinds[draw(st.sampled_from("abcd"))]


async def each(strategy: st.SearchStrategy[Any], check: Callable[[Any], Awaitable[None]]) -> None:
    """Run the check on examples of the strategy, in this event loop: hypothesis itself knows none."""
    loop = asyncio.get_running_loop()

    @settings(max_examples=tries(500), deadline=None, database=None)
    @given(strategy)
    def run(example: Any) -> None:
        asyncio.run_coroutine_threadsafe(wrapped(example), loop).result()

    async def wrapped(example: Any) -> None:
        await check(example)

    await asyncio.to_thread(run)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    wanted = serving.settings(
        failures_per_minute=100_000, requests_at_once=1_000_000, body_timeout_s=1, head_timeout_s=1
    )
    async with serving.serving(wanted) as found:
        yield found


@pytest.mark.parametrize("name", HOOKS)
async def test_a_proven_delivery_of_any_shape_is_taken_or_refused(name: str, served: Served) -> None:
    async def check(request: tuple[bytes, dict[str, str]]) -> None:
        body, headers = request
        async with served.client.post(f"{served.url}/hooks/{name}", data=body, headers=headers) as answer:
            assert answer.status in KNOWN, (answer.status, body, headers)

    await each(requests(name), check)


PATHS = st.one_of(
    st.sampled_from([f"/hooks/{name}" for name in HOOKS]),
    st.text(st.characters(min_codepoint=33, max_codepoint=0xFF), max_size=20).map(lambda text: "/" + text),
)
OTHER_HEADERS = st.sampled_from(
    ["X-Hub-Signature", "webhook-signature", "Expect", "Content-Encoding", "ce-specversion"]
)
HEAD_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0xFF), max_size=30)


@st.composite
def bytes_sent(draw: st.DrawFn) -> bytes:
    """What a sender might write on its connection: a request with parts that are not as they should be, or mere bytes."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.binary(max_size=200))
    body = draw(st.binary(max_size=40))
    lines = [
        f"{draw(st.sampled_from(['POST', 'GET', 'post', 'X', '']))} {draw(PATHS)} HTTP/1.1",
        "Host: gateway.example.test",
        draw(
            st.sampled_from(
                [
                    f"Content-Length: {len(body)}",
                    "Content-Length: 7",
                    "Content-Length: -1",
                    "Content-Length: x",
                    "Transfer-Encoding: chunked",
                    "X: y",
                ]
            )
        ),
        f"Authorization: {draw(st.one_of(st.just(f'Bearer {serving.TOKEN}'), st.just('Basic ='), HEAD_TEXT))}",
        f"Content-Type: {draw(st.one_of(st.just('application/json'), HEAD_TEXT))}",
        f"{draw(OTHER_HEADERS)}: {draw(HEAD_TEXT)}",
        "Connection: close",
    ]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


async def test_whatever_is_written_on_a_connection_the_answer_is_no_500(served: Served) -> None:
    async def check(raw: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(raw)
        writer.write_eof()
        try:
            first = await asyncio.wait_for(reader.readline(), 30)
        except ConnectionError:
            first = b""
        finally:
            writer.close()
        if first:
            assert int(first.split()[1]) in KNOWN | {100, 417}, (first, raw)

    await each(bytes_sent(), check)
    body = orjson.dumps(deliveries.alert_group())
    assert (await served.post("/hooks/alertmanager", body, **bearer()))[0] == 200
