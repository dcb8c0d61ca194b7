"""Listeners: what a person or a machine reads about an exploration. Nothing here reaches back into the engine."""
