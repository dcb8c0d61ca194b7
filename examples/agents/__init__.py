"""Agent frameworks and what surrounds them: each repeats a call by itself. Each directory needs an environment of its own.

Nothing here talks to a model: models are scripted, and the provider is a fake on this machine.
"""
