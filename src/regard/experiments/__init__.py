"""Experiments of commands: trained models that are compared, and the page of their results."""
