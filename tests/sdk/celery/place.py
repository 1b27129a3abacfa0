"""The environment that kombu requires: a host below servicebus.windows.net, https at 443, TLS at
5671, and the authorities in certifi's list.

It is created in namespaces, so that ports, hosts and authorities of the machine are unchanged."""

import os
import subprocess
from pathlib import Path

import certifi

from namespace import over

NAMESPACE = "parcels"
HOST = f"{NAMESPACE}.servicebus.windows.net"


def furnish(program, directory):
    """Name of the host, and trust in a new development authority for it."""
    over(Path("/etc/hosts"), directory / "hosts", f"127.0.0.1 localhost {HOST}\n")
    subprocess.run(
        [program, "tls", "init", "--name", HOST, "--data-dir", "data"],
        cwd=directory, check=True, stdout=subprocess.DEVNULL,
    )
    authorities = Path(certifi.where())
    ours = (directory / "data/tls/authority.pem").read_text()
    over(authorities, directory / "authorities.pem", authorities.read_text() + ours)


def environment(**more):
    """Environment of an application, without proxies and other lists of authorities."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().endswith(("_PROXY", "_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"))
    }
    return {**kept, **more}
