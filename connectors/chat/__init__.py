"""People: one Slack thread per incident."""
