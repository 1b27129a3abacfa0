"""Runs the scenarios of an administration client: `run.py PROGRAM python` or `run.py PROGRAM javascript NODE`.

A broker and TLS in front of it are started for them. Ends with a line `ok N scenarios`, or tells what failed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

from broker import ROOT, Broker
from tls import Front

HERE = Path(__file__).parent


def main():
    program, language, *node = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="peeklock-admin-") as place:
        broker = Broker(program, Path(place) / "broker")
        try:
            front = Front(broker.ports["http"], place)
            string = (
                f"Endpoint=sb://localhost:{front.port};SharedAccessKeyName={ROOT};SharedAccessKey={broker.key}"
            )
            if language == "python":
                import admin_python

                code = admin_python.run(broker, string, str(front.authority))
            else:
                environment = {**os.environ, "NODE_EXTRA_CA_CERTS": str(front.authority)}
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
