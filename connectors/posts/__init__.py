"""Sinks that only post: mail, a Teams channel, a webhook, and what Apprise reaches. All know one action, `post`."""
