"""Faultline's actions between those of people and other controllers, in random order: what must hold whoever comes first."""
