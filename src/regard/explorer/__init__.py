"""Looking inside: what attention a model really applied."""
