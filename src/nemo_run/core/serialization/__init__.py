"""Configs as text: compact (zlib-JSON) for machines, YAML for people."""
