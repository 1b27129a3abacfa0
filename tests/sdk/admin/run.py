"""Runs the scenarios of an administration client: `run.py PROGRAM python`, `run.py PROGRAM
python-async`, `run.py PROGRAM python-in-place` or `run.py PROGRAM javascript NODE`.

Starts a broker with TLS and its own authority, or in emulator mode one without TLS that accepts
the emulator's key. Ends with a line `ok N scenarios`, or prints the failures."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

from broker import Broker

HERE = Path(__file__).parent
# The published key of the emulator.
EMULATOR_KEY = "SAS_KEY_VALUE"


def main():
    program, language, *node = sys.argv[1:]
    in_place = language == "python-in-place"
    with tempfile.TemporaryDirectory(prefix="peeklock-admin-") as place:
        broker = Broker(program, Path(place) / "broker", ["--emulator"] if in_place else ["--tls"])
        try:
            key = EMULATOR_KEY if in_place else None
            # Messages use the same port.
            string = broker.connection_string(key=key, host=f"localhost:{broker.ports['amqp']}")
            if language.startswith("python"):
                import admin_python
                import awaited

                is_async = language == "python-async"
                kind = awaited.Awaited if is_async else admin_python.ServiceBusAdministrationClient
                code = admin_python.run(broker, string, kind)
            else:
                environment = {**os.environ, "NODE_EXTRA_CA_CERTS": broker.authority}
                command = [*node, str(HERE / "admin_javascript.mjs"), string]
                code = subprocess.run(command, env=environment, check=False).returncode
        finally:
            broker.kill()
        log = (broker.directory / "log").read_text()
        if "panicked" in log:
            print(f"the broker panicked\n{log}")
            code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
