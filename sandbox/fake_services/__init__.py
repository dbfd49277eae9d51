"""Stand-ins: small local servers with the wire format of Slack and of Jira Cloud that store what they receive.

They let the real connectors run in the demo, in tests and in the compose file, and they can misbehave on request: answers
that get lost after the work was done, rate limits, server errors, a search that lags.
"""
