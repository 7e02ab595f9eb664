"""What `docs/exercises.py` is made of: texts, models, measurements, and the page."""
