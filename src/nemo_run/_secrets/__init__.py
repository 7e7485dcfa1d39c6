"""What is taken for a secret, by its name and by its shape, and what is shown in its place."""
