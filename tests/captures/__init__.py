"""Captures that are kept with their results, one of each kind of fault: a change of a rule shows here what it changes."""
