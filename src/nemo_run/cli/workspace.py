"""Nothing of its own: a workspace file of the user's is executed as module ``workspace``."""
