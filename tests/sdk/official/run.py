"""Runs the official suites against the program: `run.py PROGRAM [--whole] [--suite NAME]... [NAME
PATTERN]...`.

Without --whole only the short selection runs: quick tests that are not expected to fail.
Patterns are shell patterns, such as `TestAdminClient_*`, and select among all tests. Compares
with `expected/SUITE.toml`: a test that fails and is not named there is an unexpected failure, a
test that passes although it is named there an unexpected pass. Prints a table, and ends with a
line `ok N scenarios` if nothing was unexpected."""

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from identity import new_key
from suites import HERE, SUITES

# Brokers that run at the same time. Most tests spend their time waiting.
WIDTH = 6
# Maximum seconds for the tests of one broker process.
TIMEOUT_SECONDS = 1500
MADE = Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parents[2] / "target").resolve() / "sdk-official"
COLUMNS = ("suite", "version", "passed", "failed as expected", "unexpected", "skipped", "not run")


def chunks(items, size):
    return [items[start : start + size] for start in range(0, len(items), size)]


def is_chosen(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def go(module, *arguments):
    command = ["go", *arguments]
    return subprocess.run(command, cwd=HERE / "go" / module, check=True, capture_output=True, text=True).stdout.strip()


class Run:
    """One run of one suite."""

    def __init__(self, suite, options):
        self.suite = suite
        expected = tomllib.loads((HERE / "expected" / f"{suite.name}.toml").read_text())
        self.fails = expected.get("fails", {})
        self.left_out = expected.get("left-out", {})
        # Seconds of slow tests. Each has a broker of its own, and the slowest start first.
        self.slow = expected.get("slow", {})
        self.binary = ""
        if suite.language == "go":
            self.prepare_go()
        else:
            self.prepare_python()
        chosen = [name for name in self.names if is_chosen(name, options.patterns or ["*"])]
        self.tests = [name for name in chosen if name not in self.left_out]
        self.chunk = suite.chunk
        if not options.whole and not options.patterns:
            # Quick tests take less time than starting their brokers.
            self.chunk *= 4
            exceptions = {*self.slow, *self.fails}
            self.tests = [name for name in self.tests if name not in exceptions and is_chosen(name, suite.short)]
        self.not_run_count = len(chosen) - len(self.tests)
        self.is_whole = options.whole and not options.patterns
        self.results = {}

    def prepare_go(self):
        template = "{{.Dir}}\n{{.Module.Version}}"
        self.folder, self.version = go(self.suite.module, "list", "-f", template, self.suite.source).splitlines()
        self.binary = str(MADE / self.suite.binary)
        # A test program may read these variables before it lists its tests.
        surroundings = {**os.environ, "AZURE_RECORD_MODE": "playback"}
        listed = subprocess.run(
            [self.binary, "-test.list", "^Test"], cwd=self.folder, env=surroundings, check=True, capture_output=True, text=True
        ).stdout
        self.names = [line for line in listed.splitlines() if line.startswith("Test")]

    def prepare_python(self):
        found = sorted(MADE.glob("azure_servicebus-*/tests"))
        self.folder = str(found[-1])
        self.version = found[-1].parent.name.removeprefix("azure_servicebus-")
        files = [str(path) for pattern in self.suite.source for path in sorted(found[-1].glob(pattern))]
        paths = os.pathsep.join([str(HERE / "python"), self.folder])
        command = [sys.executable, "-m", "pytest", "-p", "standins", "-p", "no:cacheprovider", "--collect-only", "-q"]
        command += ["-o", "asyncio_mode=auto", "-W", "ignore", "--rootdir", self.folder, "--no-header", *files]
        listed = subprocess.run(
            [*command, "--color=no"], cwd=self.folder, env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            check=False, capture_output=True, text=True,
        )
        self.names = [line for line in listed.stdout.splitlines() if "::" in line]
        if listed.returncode != 0:
            raise RuntimeError(f"{self.suite.name}: the tests could not be listed\n{listed.stdout}{listed.stderr}")

    def shards(self):
        """Groups of tests, and the known seconds of each group."""
        slow = [name for name in self.tests if name in self.slow]
        others = [name for name in self.tests if name not in self.slow]
        return [([name], self.slow[name]) for name in slow] + [(names, 0) for names in chunks(others, self.chunk)]

    def take(self, results):
        """Keeps results at the counted depth."""
        names = [result["name"] for result in results]
        for result in results:
            name = result["name"]
            depth = name.count("/") + 1 if self.suite.language == "go" else 1
            has_parts = any(other.startswith(f"{name}/") for other in names)
            if depth == self.suite.depth or (depth < self.suite.depth and not has_parts):
                self.results[name] = result
        # A failure outside all parts.
        for result in results:
            parts = [name for name in self.results if name.startswith(f"{result['name']}/")]
            if result["outcome"] == "failed" and self.suite.depth > 1 and "/" not in result["name"]:
                if all(self.results[name]["outcome"] != "failed" for name in parts):
                    self.results[result["name"]] = result

    def judge(self):
        """Counts, and unexpected results."""
        counts = {"passed": 0, "failed": 0, "skipped": 0}
        unexpected = []
        for name, result in sorted(self.results.items()):
            outcome = result["outcome"]
            if outcome == "failed" and name not in self.fails:
                unexpected.append((name, "failed", result["text"]))
            elif outcome == "passed" and name in self.fails:
                unexpected.append((name, f"passed, but is expected to fail: {self.fails[name]}", ""))
            else:
                counts[outcome] += 1
        if self.is_whole:
            known = {*self.names, *self.results}
            for name in [name for name in (*self.fails, *self.left_out, *self.slow) if name not in known]:
                unexpected.append((name, "is named in the file of expectations, but the suite has no such test", ""))
        return counts, unexpected


def run_shard(program, key, run, tests, directory):
    """Runs tests in a process with its own namespaces and brokers."""
    suite = run.suite
    order = {
        "program": program,
        "key": key,
        "directory": str(directory),
        "language": suite.language,
        "needs": sorted(suite.needs),
        "binary": run.binary,
        "arguments": list(suite.arguments),
        "folder": run.folder,
        "tests": tests,
        "timeout": TIMEOUT_SECONDS,
    }
    (directory / "order.json").write_text(json.dumps(order))
    command = [sys.executable, str(HERE / "shard.py"), str(directory / "order.json")]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    answer = directory / "answer.json"
    if not answer.exists():
        text = f"the tests could not be run\n{ended.stdout}{ended.stderr}"
        return [{"name": name, "outcome": "failed", "seconds": 0.0, "text": text} for name in tests], False
    told = json.loads(answer.read_text())
    return told["results"], told["panicked"]


def table(rows):
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(COLUMNS))]
    for row in rows:
        cells = [str(cell).ljust(width) for cell, width in zip(row, widths)]
        print("  ".join(cells).rstrip())


def main():
    parser = argparse.ArgumentParser(description="Run the official suites against a broker.")
    parser.add_argument("program")
    parser.add_argument("--whole", action="store_true", help="run every test, not only the short selection")
    parser.add_argument("--suite", action="append", help="run only this suite; may be given several times")
    parser.add_argument("--width", type=int, default=WIDTH, help="number of brokers that run at the same time")
    parser.add_argument("--durations", action="store_true", help="print the time of each test")
    parser.add_argument("patterns", nargs="*", help="run only tests with these names")
    options = parser.parse_intermixed_args()
    program = str(Path(options.program).resolve())
    chosen = [suite for suite in SUITES if not options.suite or suite.name in options.suite]
    if unknown := set(options.suite or []) - {suite.name for suite in SUITES}:
        parser.error(f"no suite has the name {', '.join(sorted(unknown))}; there are {', '.join(suite.name for suite in SUITES)}")
    chosen = [suite for suite in chosen if options.whole or options.patterns or suite.short]
    chosen = [suite for suite in chosen if suite.language != "go" or (MADE / suite.binary).exists()]
    with ThreadPoolExecutor(options.width) as threads:
        runs = list(threads.map(lambda suite: Run(suite, options), chosen))
    place = Path(tempfile.mkdtemp(prefix="peeklock-official-"))
    key = new_key()
    panicked = []
    lock = threading.Lock()
    shards = [(run, tests, seconds) for run in runs for tests, seconds in run.shards()]
    shards.sort(key=lambda shard: -shard[2])

    def work(numbered):
        number, (run, tests, _) = numbered
        directory = place / f"{run.suite.name}-{number}"
        directory.mkdir()
        began = time.monotonic()
        results, has_panicked = run_shard(program, key, run, tests, directory)
        with lock:
            run.take(results)
            if has_panicked:
                panicked.append(directory)
            if options.durations:
                print(f"{run.suite.name}-{number}: {time.monotonic() - began:.0f} s", flush=True)

    with ThreadPoolExecutor(options.width) as threads:
        list(threads.map(work, enumerate(shards)))
    rows, is_good, count = [COLUMNS], not panicked, 0
    for run in runs:
        if options.durations:
            for name, result in sorted(run.results.items(), key=lambda item: -item[1]["seconds"]):
                print(f"{result['seconds']:7.1f} s  {result['outcome']:7}  {run.suite.name}  {name}")
        counts, unexpected = run.judge()
        for name, what, text in unexpected:
            print(f"--- {run.suite.name}: {name}: {what}\n{text}")
        is_good = is_good and not unexpected
        count += len(run.results)
        row = (run.suite.name, run.version, counts["passed"], counts["failed"], len(unexpected), counts["skipped"])
        rows.append((*row, run.not_run_count))
    table(rows)
    for directory in panicked:
        print(f"--- the broker panicked; see {directory}")
    if not is_good:
        print(f"logs of tests and brokers are in {place}")
        sys.exit(1)
    shutil.rmtree(place)
    print(f"ok {count} scenarios")


if __name__ == "__main__":
    main()
