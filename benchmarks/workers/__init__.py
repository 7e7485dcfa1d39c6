"""Programs that a candidate runs: each takes a file to answer to, and does one thing."""
