"""Dead letters as people handle them: listed, grouped, shown, written back after a fix, deleted."""
