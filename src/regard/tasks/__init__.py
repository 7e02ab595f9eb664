"""Tasks: data and scores of answers."""
