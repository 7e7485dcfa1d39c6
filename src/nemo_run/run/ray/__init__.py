"""Ray clusters and jobs, by `RayCluster` and `RayJob` of the modules here."""
