"""What users add to an experiment becomes jobs, checked before the first is submitted."""
