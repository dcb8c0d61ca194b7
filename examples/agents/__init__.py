"""Agent frameworks and what surrounds them: each repeats calls. Each directory needs its own environment.

Nothing here talks to a model: models are scripted, and the provider is a fake on this machine.
"""
