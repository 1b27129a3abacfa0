#!/usr/bin/env python3
"""Runs the test binaries that cargo has built, two at a time, and prints the output of each at its end.

usage: cargo test --no-run --message-format json-render-diagnostics | tests/support/run_binaries.py

Those that measure time, wait for locks to end, or use the whole disk or both cores, run last, each
alone. All run, also after a failure; exits with 1 if any failed.
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import time

ALONE = ["simulation", "durability", "bench", "browser", "sdk", "hostile"]
# Seconds after which a binary that hangs is ended.
SECONDS_MAX = 1_200


def binaries():
    """Name, path and folder of the package of each binary with tests."""
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            yield message["target"]["name"], message["executable"], os.path.dirname(message["manifest_path"])


def passes(binary) -> bool:
    name, path, folder = binary
    print(f"test: {name} begins", flush=True)
    started = time.monotonic()
    ended = subprocess.run(
        ["timeout", "--verbose", "--kill-after", "5", str(SECONDS_MAX), path],
        cwd=folder, env=os.environ | {"CARGO_MANIFEST_DIR": folder}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    seconds = time.monotonic() - started
    print(f"     Running {name} ({path}), {seconds:.0f} s\n{ended.stdout}", flush=True)
    return ended.returncode == 0


def main() -> int:
    built = list(binaries())
    if not built:
        print("test: cargo has built no tests", file=sys.stderr)
        return 1
    paired = [binary for binary in built if binary[0] not in ALONE]
    alone = sorted((binary for binary in built if binary[0] in ALONE), key=lambda binary: ALONE.index(binary[0]))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(passes, paired))
    results += map(passes, alone)
    failed = [name for (name, _, _), passed in zip(paired + alone, results) if not passed]
    print(f"test: {len(results)} binaries ran; failed: {', '.join(failed) or 'none'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
