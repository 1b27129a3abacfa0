"""Namespaces for a test, so that ports, hosts and files of the machine are unchanged."""

import fcntl
import os
import socket
import struct
import subprocess
import sys

UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
MARK = "PEEKLOCK_TEST_NAMESPACE"
# <linux/sockios.h>, <net/if.h>
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def enter():
    """Continues in new namespaces: the program restarts in them, with loopback up."""
    if not os.environ.get(MARK):
        os.execvpe(UNSHARE[0], [*UNSHARE, sys.executable, *sys.argv], {**os.environ, MARK: "1"})
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def over(path, file, text):
    """Makes a path show this text inside the namespace."""
    file.write_text(text)
    subprocess.run(["mount", "--bind", file, path], check=True)
