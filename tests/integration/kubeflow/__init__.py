"""What only jobs on Kubernetes have."""
