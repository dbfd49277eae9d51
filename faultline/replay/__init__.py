"""Captures: recorded, decided again, and explained."""
