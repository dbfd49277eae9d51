"""Faults of nodes and of what nodes share."""
