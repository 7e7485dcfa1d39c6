"""What runs on the other side."""
