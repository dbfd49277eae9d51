"""The stack of `faultline demo`: a broker, an API server and stand-ins as child processes, for a machine with only Python."""
