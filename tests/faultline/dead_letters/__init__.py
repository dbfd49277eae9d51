"""Tests of `faultline.dead_letters`."""
