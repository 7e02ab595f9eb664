"""The commands: they parse arguments, call `regard.api`, and print."""
