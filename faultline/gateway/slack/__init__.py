"""Answers from Slack: buttons, `/faultline`, dialogs, the App Home and replies in threads, over HTTP or Socket Mode.

Both ways hand a `Delivery` to the same `desk`; what it asks for is decided by pure code (`interactions.py`), and whether the
person may is decided by the responder alone.
"""

from faultline.gateway.slack.http import routes

__all__ = ["routes"]
