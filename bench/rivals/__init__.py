"""The programs that the detector is compared with, each a process of its own that speaks JSON lines on stdin and stdout."""
