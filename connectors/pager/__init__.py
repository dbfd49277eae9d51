"""Pages, silences and annotations: what tells people outside the chat, or keeps their alarms quiet."""
