"""One ssh connection for each machine: commands, files and ports over it."""
