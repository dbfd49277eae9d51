"""Captures: written, read, replayed and explained."""
