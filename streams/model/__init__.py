"""The vocabulary: values every room shares. Frozen, no I/O; the one tree of modules that everyone may import."""
