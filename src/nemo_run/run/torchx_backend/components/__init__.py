"""Launchers as torchx components: a program in, an application out."""
