"""Millions of mixed records through detectors that are killed again and again, against the same records undisturbed."""
