"""Coverage-guided fuzzing of everything that reads bytes from outside. Run by `make fuzz`, not by the tests."""
