"""Faults of links, switches and the fabric."""
