"""What makes Ray clusters and jobs work on the backends that have them."""
