"""Mail over SMTP: the server of `once_fakes.mail_server`, which is a real one.

Sources: https://www.rfc-editor.org/rfc/rfc5321 (section 6.1: the server is responsible for a mail once it has answered
the final dot with 250) and https://www.rfc-editor.org/rfc/rfc1047, which is about what is missing: a client that does
not get that answer sends the mail again, and the server has nothing to recognise it by. Message-ID is a name, and no
server is bound to look at it.

Not modelled: relaying, bounces, authentication, TLS.
"""

from __future__ import annotations

from once_fakes.contract import Contract

SMTP = Contract(name="smtp", dedup="none", lookup="none")
"""Every mail that is accepted is sent; nobody can ask about it."""
