"""Tasks as torchx applications, and the schedulers that run them."""
