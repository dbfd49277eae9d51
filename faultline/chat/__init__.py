"""The chat process: one thread per incident."""
