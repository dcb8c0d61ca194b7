"""How sending a mail can end other than by its being accepted."""


class MailUnconfirmed(Exception):
    """The mail may or may not have been sent, and sending it again could send it twice: a person must look."""


class MailRejected(Exception):
    """The provider answered that it will not send it."""


class MailDelayed(Exception):
    """No answer yet. Start the mailer again: it is safe to."""
