"""What people and programs touch: the command line, later the REST application."""
