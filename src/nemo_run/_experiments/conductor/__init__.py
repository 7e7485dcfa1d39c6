"""Launch jobs in order and see them through: here, in this process, or detached."""
