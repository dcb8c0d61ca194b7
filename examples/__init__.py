"""Programs to point the harness at. They are ordinary code and know nothing of it."""
