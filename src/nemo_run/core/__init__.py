"""What tasks are made of and where they run."""
