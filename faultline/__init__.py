"""The front door: command line, settings, and the wiring of each process."""
