"""What backends on Kubernetes share: calls of its REST API, scripts and log lines of pods."""
