"""What an experiment does: jobs, setup, the conductor, the store, provenance, display."""
