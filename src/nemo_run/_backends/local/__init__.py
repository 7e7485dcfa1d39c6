"""Jobs on this machine: a supervisor for each replica, a server that forks them."""
