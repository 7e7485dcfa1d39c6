"""Clusters that cannot be had here: they speak the vendor's API, and their jobs are processes."""
