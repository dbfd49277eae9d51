"""What operators use: command line, settings, and the wiring of each process."""
