"""Tests of `faultline.checks`."""
