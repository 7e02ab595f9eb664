"""A local web page: attention of models while they read and generate."""
