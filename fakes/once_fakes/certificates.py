"""A certificate authority of one server's life: it vouches for the fakes, and only to who was told to trust it.

Private keys stay in the server's memory, where the system has files in memory; else a key is in a temporary file that
only this user can read, for as long as loading it takes.
"""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
from collections import OrderedDict
from importlib.util import find_spec
from typing import TYPE_CHECKING

from once_fakes.redirect import LOOPBACK, bare_host

if TYPE_CHECKING:
    import trustme

_KEPT_LEAVES = 256


def require_trustme() -> None:
    """Raises ImportError, saying what to install, if certificates cannot be made."""
    if find_spec("trustme") is None:
        raise ImportError(
            "HTTPS and redirected hosts need a local certificate authority, which trustme makes; it is not installed:"
            " pip install 'pytest-once-chaos[https]'"
        )


class Authority:
    """A new authority with its public certificate in a file, `ca_file` (PEM). Close it to remove the file.

    Raises ImportError if trustme is not installed.
    """

    def __init__(self) -> None:
        require_trustme()
        import trustme

        self._authority = trustme.CA(organization_name="once_fakes, for tests on this machine")
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()
        self._folder = tempfile.mkdtemp(prefix="once-ca-")
        self.ca_file = os.path.join(self._folder, "ca.pem")
        self._authority.cert_pem.write_to_path(self.ca_file)
        self.context = self._for(*LOOPBACK)
        """For a client that names no host."""
        self.context.sni_callback = self._choose

    def close(self) -> None:
        """Remove the file."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _choose(self, tls: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> int | None:
        host = bare_host(name or "")
        if not host or host in LOOPBACK:
            return None
        if host not in self._contexts:
            try:
                self._contexts[host] = self._for(host)
            except ValueError:  # not a name that a certificate could carry
                return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
            if len(self._contexts) > _KEPT_LEAVES:
                self._contexts.popitem(last=False)
        tls.context = self._contexts[host]
        return None

    def _for(self, *hosts: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        _load(context, self._authority.issue_cert(*hosts))
        return context


def _load(context: ssl.SSLContext, leaf: trustme.LeafCert) -> None:
    """Load key and certificates, which the ssl module reads from a file only."""
    pem = leaf.private_key_and_cert_chain_pem.bytes()
    if hasattr(os, "memfd_create"):
        in_memory = os.memfd_create("once-leaf")
        try:
            os.write(in_memory, pem)
            context.load_cert_chain(f"/proc/self/fd/{in_memory}")
        finally:
            os.close(in_memory)
        return
    with tempfile.NamedTemporaryFile(prefix="once-leaf-") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
