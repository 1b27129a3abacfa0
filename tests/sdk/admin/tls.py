"""TLS in front of a listener: the administration clients of the SDKs speak https alone.

A development authority is made for each run. What is decrypted is handed on as it is.
"""

import contextlib
import selectors
import socket
import ssl
import threading
from pathlib import Path

import trustme


class Front:
    """Listens with a certificate for `localhost`, and hands on to a port."""

    def __init__(self, port, directory):
        authority = trustme.CA()
        self.authority = Path(directory) / "authority.pem"
        authority.cert_pem.write_to_path(str(self.authority))
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        authority.issue_cert("localhost").configure_cert(self.context)
        self.behind = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            plain, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(plain,), daemon=True).start()

    def serve(self, plain):
        with contextlib.suppress(OSError), plain:
            with self.context.wrap_socket(plain, server_side=True) as client:
                with socket.create_connection(("127.0.0.1", self.behind)) as broker:
                    pump(client, broker)


def pump(client, broker):
    """Until one of them ends."""
    selector = selectors.DefaultSelector()
    selector.register(client, selectors.EVENT_READ, broker)
    selector.register(broker, selectors.EVENT_READ, client)
    while True:
        for key, _ in selector.select():
            while True:
                data = key.fileobj.recv(65536)
                if not data:
                    return
                key.data.sendall(data)
                # What is decrypted already makes no event.
                if not (isinstance(key.fileobj, ssl.SSLSocket) and key.fileobj.pending()):
                    break
