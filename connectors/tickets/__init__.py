"""Tickets: one issue per incident."""
