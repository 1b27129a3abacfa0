#!/usr/bin/env python3
"""Builds and runs the test binaries of the workspace so that neither core is ever idle. Prints the output of each at its
end.

- WAITING binaries mostly wait: for locks that end, clients, browsers. They are built first, while `set_up` sets up
  their clients, and run one after the other, at normal priority.
- Next to them, at the lowest priority, cargo builds all others, which then run two at a time at a low priority.
  LONG ones begin first, so that none runs alone at the end.
- ALONE binaries measure time, or use both cores. They run last, one after the other.

All run, also after a failure. What failed is printed again at the end, where a reader of a long log looks first; exits
with 1 then.
"""
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import time

WAITING = ["sdk", "browser"]
LONG = ["durability", "undo_crashes", "journal", "in_process", "server"]
ALONE = ["simulation", "bench", "hostile"]
BUILD = ["cargo", "test", "--no-run", "--workspace", "--message-format", "json-render-diagnostics"]
AT_LOWEST_PRIORITY = ["nice", "-n", "19"]
# Enough for brokers to answer within their limits while clients and browsers are busy.
AT_LOW_PRIORITY = ["nice", "-n", "10"]
# Seconds after which a binary that hangs is ended.
SECONDS_MAX = 1_200
SET_UP = os.path.join(os.path.dirname(__file__), "set_up")

# Lines of a failed binary that are printed again at the end.
LINES_MAX = 100

running = set()
# What each failed binary says about its failed tests.
failures = []
is_ending = False


class Failed(Exception):
    """Something that all tests need has failed; its output has the reason."""


def start(command, **options) -> subprocess.Popen:
    """Starts a command in a group of processes of its own, which `end_all` ends.

    Not in a session of its own: Linux often gives each session an equal share, whatever the priorities within."""
    if is_ending:
        raise Failed
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, process_group=0, **options)
    running.add(process)
    return process


def wait(process) -> str:
    output, _ = process.communicate()
    running.discard(process)
    return output


def end_all():
    """Ends what runs, and starts nothing more."""
    global is_ending
    is_ending = True
    for process in list(running):
        try:
            os.killpg(process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass


def build(priority, flags):
    """Name, path and folder of the package of each built binary with tests."""
    cargo = start([*priority, *BUILD, *flags], stdout=subprocess.PIPE)
    lines = wait(cargo).splitlines()
    if cargo.returncode != 0:
        raise Failed
    for line in lines:
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            yield message["target"]["name"], message["executable"], os.path.dirname(message["manifest_path"])


def passes(binary, priority=()) -> bool:
    name, path, folder = binary
    print(f"test: {name} begins", flush=True)
    started = time.monotonic()
    process = start(
        [*priority, "timeout", "--verbose", "--kill-after", "5", str(SECONDS_MAX), path],
        cwd=folder, env=os.environ | {"CARGO_MANIFEST_DIR": folder},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
    )
    output = wait(process)
    seconds = time.monotonic() - started
    print(f"     Running {name} ({path}), {seconds:.0f} s\n{output}", flush=True)
    if process.returncode != 0:
        # `failures:` is printed twice: before the output of the failed tests, and before their names.
        report = output.partition("\nfailures:\n")[2] or output
        failures.append((name, "\n".join(report.splitlines()[:LINES_MAX])))
    return process.returncode == 0


def passed_waiting(binaries, setting_up) -> dict:
    wait(setting_up)
    if setting_up.returncode != 0:
        print("test: what the tests need beside them could not be set up", file=sys.stderr, flush=True)
        return {("set_up", SET_UP, None): False}
    return {binary: passes(binary) for binary in sorted(binaries, key=lambda binary: WAITING.index(binary[0]))}


def passed_all() -> dict:
    """Every binary, and whether it passed."""
    setting_up = start([SET_UP])
    waiting = list(build([], [flag for name in WAITING for flag in ("--test", name)]))
    with concurrent.futures.ThreadPoolExecutor(1) as first, concurrent.futures.ThreadPoolExecutor(2) as pairs:
        try:
            passed = first.submit(passed_waiting, waiting, setting_up)
            others = [binary for binary in build(AT_LOWEST_PRIORITY, []) if binary[0] not in WAITING]
            paired = [binary for binary in others if binary[0] not in ALONE]
            paired.sort(key=lambda binary: binary[0] not in LONG)
            results = pairs.map(lambda binary: passes(binary, AT_LOW_PRIORITY), paired)
            passed = dict(zip(paired, results)) | passed.result()
        except BaseException:
            # Nobody waits minutes for tests of a workspace that does not build, or after Ctrl-C.
            end_all()
            raise
    alone = sorted(set(others) - set(paired), key=lambda binary: ALONE.index(binary[0]))
    return passed | {binary: passes(binary) for binary in alone}


def main() -> int:
    # As Ctrl-C does, so that what runs is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        passed = passed_all()
    except (Failed, KeyboardInterrupt):
        return 1
    finally:
        end_all()
    failed = [name for (name, _, _), is_passed in passed.items() if not is_passed]
    for name, report in failures:
        print(f"test: {name} failed:\n{report}\n")
    print(f"test: {len(passed)} binaries ran; failed: {', '.join(failed) or 'none'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
