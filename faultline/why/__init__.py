"""Why something was decided (`explanation`), and why something was not (`why_not`), as trees for people and programs."""
