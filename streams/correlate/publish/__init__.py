"""From hypotheses to published incidents."""
