"""A refund task on Celery."""
