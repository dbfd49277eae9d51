"""How a process is configured, wired, served and watched."""
