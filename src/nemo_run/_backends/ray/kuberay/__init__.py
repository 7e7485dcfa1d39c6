"""Ray clusters and jobs on Kubernetes, as objects of the KubeRay operator."""
