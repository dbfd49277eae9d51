"""The state machine of one run."""
