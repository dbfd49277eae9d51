"""One Slack thread per incident."""
