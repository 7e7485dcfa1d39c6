"""One module for each backend, each with ``create_scheduler``."""
