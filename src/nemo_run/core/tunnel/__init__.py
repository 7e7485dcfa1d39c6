"""Running commands and moving files where the jobs are: on this machine, or over ssh."""
