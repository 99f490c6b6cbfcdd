"""Hypothesis in this project."""

from hypothesis import settings

# No deadline: how long one example takes on a shared machine says nothing about the code.
settings.register_profile("nightmill", deadline=None)
settings.load_profile("nightmill")
