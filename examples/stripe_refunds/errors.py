"""How a refund can end other than by being paid."""


class RefundUnconfirmed(Exception):
    """No answer within the retry budget. The refund may or may not have been paid: start the agent again."""


class RefundRejected(Exception):
    """Stripe answered that it will not pay."""
