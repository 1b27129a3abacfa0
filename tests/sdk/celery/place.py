"""The surroundings that kombu leaves no choice about: a host below servicebus.windows.net, https at 443, TLS at 5671, and
the authorities of certifi's list.

They are made in namespaces of their own, so that ports, hosts and authorities of the machine stay as they are.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import certifi

NAMESPACE = "parcels"
HOST = f"{NAMESPACE}.servicebus.windows.net"
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
MARK = "PEEKLOCK_TEST_NAMESPACE"
# <linux/sockios.h>, <net/if.h>
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def enter():
    """Goes on in namespaces of this process's own; the program begins anew in them."""
    if os.environ.get(MARK):
        return
    os.execvpe(UNSHARE[0], [*UNSHARE, sys.executable, *sys.argv], {**os.environ, MARK: "1"})


def furnish(program, directory):
    """Loopback, the host's name, and the trust in a new development authority for it."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    over(Path("/etc/hosts"), directory / "hosts", f"127.0.0.1 localhost {HOST}\n")
    subprocess.run(
        [program, "tls", "init", "--name", HOST, "--data-dir", "data"],
        cwd=directory, check=True, stdout=subprocess.DEVNULL,
    )
    authorities = Path(certifi.where())
    ours = (directory / "data/tls/authority.pem").read_text()
    over(authorities, directory / "authorities.pem", authorities.read_text() + ours)


def over(path, file, text):
    """Has a path show this text to whoever is in the namespace."""
    file.write_text(text)
    subprocess.run(["mount", "--bind", file, path], check=True)


def environment(**more):
    """That of an application: neither a proxy nor another list of authorities."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().endswith(("_PROXY", "_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"))
    }
    return {**kept, **more}
