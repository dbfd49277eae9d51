"""Takes names out of a capture: the same name becomes the same pseudonym in every file, and who lacks the key cannot undo it."""
