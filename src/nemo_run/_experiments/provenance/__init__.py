"""Where an experiment comes from: code, machine, person, call."""
