"""Domain model shared by all packages: frozen values, no I/O."""
