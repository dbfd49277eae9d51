"""Tests of `faultline.lint`."""
