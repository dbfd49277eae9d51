"""Metric samples, by the format that carries them."""
