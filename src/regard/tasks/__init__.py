"""Tasks: data and how answers are scored."""
