"""Simulation, demo and emulators. Nothing of it runs in production."""
