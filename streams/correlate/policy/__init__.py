"""Families, severities and times of the correlator, as data."""
