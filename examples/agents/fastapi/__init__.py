"""An idempotent endpoint on FastAPI."""
