"""Matching of untrusted text, without knowing what it means."""
