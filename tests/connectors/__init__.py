"""Each connector against what it talks to, and its decisions on their own."""
