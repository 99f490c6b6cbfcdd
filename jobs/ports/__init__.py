"""Ports: what the domain needs of the world. Each docstring is the contract that the contract tests hold."""
