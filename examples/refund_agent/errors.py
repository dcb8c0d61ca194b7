"""How a refund can end other than by being paid."""


class RefundUnconfirmed(Exception):
    """No answer within the retry budget. The refund may or may not have been paid: start the agent again."""


class RefundRejected(Exception):
    """The provider answered that it will not pay."""


class RefundConflict(Exception):
    """The order already has a refund of another amount."""
