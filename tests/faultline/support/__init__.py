"""Tests of the bundle for whoever helps."""
