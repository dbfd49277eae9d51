"""One suite that every connector passes, whatever it talks to.

A connector's own tests say what its change looks like; the suite says how any change behaves when the world is unkind:
called twice, crashed before or after the call, cut off after the server acted, throttled, broken for a while, refused,
changed by a person in between, out of its lease.

How to put a connector under it, for each of its actions:

1. Start the server it talks to: the real one where it runs here, else the stand-in that ships.
2. Write a `Case` (`tests/contract/case.py`): one effect in a world of its own, how often its change is there *as the
   server sees it*, what a person would do to it, how the server refuses and throttles.
3. Build the connector against `case.proxy.url`, never against the server: all faults are made there, on real HTTP
   (`tests/contract/faults.py`). Give it timeouts of some seconds, and shorter ones where the proxy `will_hang`: whoever
   has no processor for a moment must not be taken for a server that does not answer.
4. Inherit the suite, with a `case` fixture and the markers that its server needs; `EffectContract` where there is no undo:

       @pytest.mark.embedded
       class TestOpenTicket(ConnectorContract):
           @pytest.fixture
           async def case(self) -> AsyncIterator[Case]:
               async with stand_in() as server, FaultProxy(server.url, is_write) as proxy:
                   yield OpenTicket(proxy, server)

`carry_out` in `tests/contract/case.py` does what the responder does with an outcome: waits, tries again, looks up.
"""
