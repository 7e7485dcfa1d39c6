"""What an experiment shows on a terminal."""
