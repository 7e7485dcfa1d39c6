"""The commands of ``nemorun`` that run something, and what they read."""
