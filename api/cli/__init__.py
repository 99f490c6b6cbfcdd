"""The command line: `nightmill`. Each command's module is imported when the command is called."""
