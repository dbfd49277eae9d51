"""The console: pages that show what is open and what waits, and take people's decisions. Served by the gateway."""
