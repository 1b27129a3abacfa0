"""A broker process of the built program, and requests beyond the SDK: entities, policies, counts.
"""

import base64
import hashlib
import hmac
import json
import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = "RootManageSharedAccessKey"
# Short, so that scenarios see locks end.
SETTINGS = {
    "LIMITS__LOCK_DURATION_MIN": "1s",
    "SERVER__ARBITERS": "2",
    "AMQP__WORKERS": "2",
    "LOG__FILTER": "warn",
}


def sign(policy, key, resource, seconds):
    """Creates a shared access signature like any client."""
    resource = urllib.parse.quote(resource, safe="")
    expiry = str(int(time.time() + seconds))
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    signature = urllib.parse.quote(base64.b64encode(digest), safe="")
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={policy}"


class Broker:
    """A process. After `kill`, `start` serves the stored data at the same ports."""

    def __init__(self, program, directory, arguments=(), settings=None, address="127.0.0.1", **ports):
        self.program = program
        self.address = address
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.arguments = arguments
        self.is_secure = "--tls" in arguments
        # The certificate of the development authority, if the broker has TLS.
        self.authority = str(self.directory / "data/tls/authority.pem")
        self.settings = {**SETTINGS, **(settings or {})}
        self.ports = {"http": 0, "ws": 0, "amqp": 0, **ports}
        self.start()

    def start(self):
        environment = {name: value for name, value in os.environ.items() if not name.upper().startswith("PEEKLOCK")}
        environment.update({f"PEEKLOCK__{name}": value for name, value in self.settings.items()})
        command = [self.program, "serve", "--data-dir", "data", *self.arguments]
        for listener, port in self.ports.items():
            command += [f"--{listener}", f"{self.address}:{port}"]
        log = open(self.directory / "log", "ab")
        self.process = subprocess.Popen(
            command, cwd=self.directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
        )
        log.close()
        found = {}
        for line in self.process.stdout:
            name, _, url = line.decode().strip().partition(" ")
            if url and name in ("http", "websocket", "amqp"):
                found[name] = int(url.rsplit(":", 1)[1])
            if len(found) == 3:
                break
        else:
            raise RuntimeError(f"the broker did not start; see {self.directory}/log")
        self.ports = {"http": found["http"], "ws": found["websocket"], "amqp": found["amqp"]}
        self.amqp = f"{self.address}:{found['amqp']}"
        self.trust = ssl.create_default_context(cafile=self.authority) if self.is_secure else None
        first = (self.directory / "data/root.connection-string").read_text().splitlines()[0]
        self.key = first.split("SharedAccessKey=", 1)[1].split(";")[0]

    def kill(self):
        """Sends SIGKILL: data that was not durable is lost."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Sends SIGTERM, for an orderly end."""
        self.process.terminate()
        self.process.wait()

    def connection_string(self, policy=ROOT, key=None, entity=None, host=None):
        """The connection string for applications."""
        text = f"Endpoint=sb://{host or self.amqp};SharedAccessKeyName={policy};SharedAccessKey={key or self.key}"
        if not self.is_secure:
            text += ";UseDevelopmentEmulator=true"
        return f"{text};EntityPath={entity}" if entity else text

    def token_string(self, token):
        return f"Endpoint=sb://{self.amqp};SharedAccessSignature={token};UseDevelopmentEmulator=true"

    def ask(self, method, path, body=None):
        """Sends a request to the JSON API. Raises on a refusal."""
        text = self.request(method, f"$api/v1/{path}", body)
        return json.loads(text) if text else None

    def metric(self, name):
        """The sum of a counter on the metrics page."""
        lines = self.request("GET", "metrics").decode().splitlines()
        found = [line.rsplit(" ", 1) for line in lines if line.partition("{")[0].partition(" ")[0] == name]
        return sum(float(value) for _, value in found)

    def request(self, method, path, body=None):
        request = urllib.request.Request(
            f"{'https' if self.is_secure else 'http'}://{self.address}:{self.ports['http']}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": sign(ROOT, self.key, "http://localhost/", 600),
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=20, context=self.trust) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from None
