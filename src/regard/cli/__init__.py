"""The commands: thin; they parse, call and print."""
