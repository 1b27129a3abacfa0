"""Runs some tests of one suite against a broker of their own: `shard.py ORDER`, a file that
`run.py` writes.

First enters namespaces of its own, in which a host below servicebus.windows.net leads to the
broker at ports 443 and 5671."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.append(str(HERE.parent / "python"))

import certifi
import namespace
from broker import ROOT, Broker
from identity import Provider, configuration
from nodes import Nodes

# Names and addresses of two brokers. At 127.0.0.1 no broker listens, which a test expects.
HOST, ADDRESS = "standard.servicebus.windows.net", "127.0.0.2"
PREMIUM_HOST, PREMIUM_ADDRESS = "premium.servicebus.windows.net", "127.0.0.3"
POLICIES = {"NoManage": ["Listen", "Send"], "SendOnly": ["Send"], "ListenOnly": ["Listen"]}
# The limit of the cloud: the tests wait for locks with the durations that they set.
SETTINGS = {"LIMITS__LOCK_DURATION_MIN": "5s"}
# The end of a Go test, with its result.
ENDED = re.compile(r"--- (PASS|FAIL|SKIP): (\S+) \((\d+\.\d+)s\)")
# From here on lines belong to this test.
BEGUN = re.compile(r"^=== (?:RUN|CONT|NAME)\s+(\S+)")
OUTCOMES = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}


class Place:
    """The environment of a suite: hosts, trust, an identity provider, one broker for each tier."""

    def __init__(self, program, directory, needs, key):
        self.program = program
        self.directory = directory
        hosts = f"127.0.0.1 localhost\n{ADDRESS} {HOST}\n{PREMIUM_ADDRESS} {PREMIUM_HOST}\n"
        namespace.over(Path("/etc/hosts"), directory / "hosts", hosts)
        self.provider = Provider(*key)
        (directory / "keys.json").write_text(self.provider.keys())
        # For SDKs that trust certifi's list, and those that read the environment.
        authorities = Path(certifi.where()).read_text()
        self.brokers = []
        self.standard = self.broker("standard", HOST, ADDRESS, "Standard", amqp=5671)
        authorities += Path(self.standard.authority).read_text()
        if "premium" in needs:
            self.premium = self.broker("premium", PREMIUM_HOST, PREMIUM_ADDRESS, "Premium")
            authorities += Path(self.premium.authority).read_text()
        namespace.over(Path(certifi.where()), directory / "authorities.pem", authorities)

    def broker(self, name, host, address, tier, **ports):
        directory = self.directory / name
        directory.mkdir()
        (directory / "peeklock.toml").write_text(configuration(self.directory / "keys.json"))
        subprocess.run(
            [self.program, "tls", "init", "--name", host, "--name", address, "--data-dir", "data"],
            cwd=directory, check=True, stdout=subprocess.DEVNULL,
        )
        flags = ["--tls", "--gateway", f"{address}:443"]
        settings = {**SETTINGS, "NAMESPACE__TIER": tier, "NAMESPACE__NAME": name}
        broker = Broker(self.program, directory, flags, settings, address, **ports)
        self.brokers.append(broker)
        return broker

    def strings(self):
        """Connection strings of the root policy and of the policies with fewer rights."""
        found = {ROOT: f"Endpoint=sb://{HOST}/;SharedAccessKeyName={ROOT};SharedAccessKey={self.standard.key}"}
        for policy, rights in POLICIES.items():
            self.standard.ask("PUT", f"policies/{policy}", {"rights": rights})
            key = self.standard.ask("POST", f"policies/{policy}/keys")["primaryKey"]
            found[policy] = f"Endpoint=sb://{HOST}/;SharedAccessKeyName={policy};SharedAccessKey={key}"
        return found

    def environment(self):
        """The environment of the tests: only necessary variables of the caller, so that no proxy
        or credential of the caller is used."""
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
        authorities = str(self.directory / "authorities.pem")
        trust = {"SSL_CERT_FILE": authorities, "REQUESTS_CA_BUNDLE": authorities}
        self.provider.command(self.directory / "bin")
        kept["PATH"] = f"{self.directory / 'bin'}:{kept['PATH']}"
        return {**kept, **trust, **self.provider.serve()}


def tests_of_go(order, place, environment):
    """Runs tests of a compiled Go package. Returns their results, including subtests."""
    strings = place.strings()
    premium = ""
    if "premium" in order["needs"]:
        premium = f"Endpoint=sb://{PREMIUM_HOST}/;SharedAccessKeyName={ROOT};SharedAccessKey={place.premium.key}"
    environment |= {
        "AZURE_RECORD_MODE": "live",
        "SERVICEBUS_ENDPOINT": HOST,
        "SERVICEBUS_ENDPOINT_PREMIUM": PREMIUM_HOST,
        "SERVICEBUS_CONNECTION_STRING": strings[ROOT],
        "SERVICEBUS_CONNECTION_STRING_PREMIUM": premium or strings[ROOT],
        "SERVICEBUS_CONNECTION_STRING_NO_MANAGE": strings["NoManage"],
        "SERVICEBUS_CONNECTION_STRING_SEND_ONLY": strings["SendOnly"],
        "SERVICEBUS_CONNECTION_STRING_LISTEN_ONLY": strings["ListenOnly"],
    }
    # Entities that the resource template of the suite creates.
    for queue, requires_session in (("testQueue", False), ("testQueueWithSessions", True)):
        place.standard.ask("PUT", f"queues/{queue}", {"lockDuration": "PT5M", "requiresSession": requires_session})
    if "nodes" in order["needs"]:
        plain = Broker(place.program, place.directory / "plain", settings=SETTINGS)
        place.brokers.append(plain)
        nodes = Nodes(plain.ports["amqp"], lambda name: plain.ask("PUT", f"queues/{name}", {}))
        environment["AMQP_BROKER_ADDR"] = f"amqp://127.0.0.1:{nodes.port}"
    results, texts, left = [], {}, order["tests"]
    # A test that panics ends the program before later tests begin, so they are run again.
    while left:
        ended = run_go(order, place, environment, left)
        test = ""
        for line in ended:
            if begun := BEGUN.match(line):
                test = begun.group(1)
            if found := ENDED.search(line):
                test = found.group(2)
                results.append([OUTCOMES[found.group(1)], test, float(found.group(3))])
            texts.setdefault(test, []).append(line)
        done = {result[1] for result in results}
        broken = [test for test in left if test not in done and test in texts] or left[:1]
        left = [test for test in left if test not in done and test not in broken]
        for test in broken:
            if test not in done:
                results.append(["failed", test, 0.0])
                texts[test] = [*texts.get(test, []), "the test did not end; the last lines of its program:", *ended[-30:]]
    return [
        {"outcome": outcome, "name": name, "seconds": seconds, "text": shortened(texts.get(name, []))}
        for outcome, name, seconds in results
    ]


def run_go(order, place, environment, tests):
    """Lines that the program of a Go package prints about these tests."""
    chosen = "|".join(re.escape(name) for name in tests)
    command = [order["binary"], "-test.v", "-test.timeout", f"{order['timeout']}s", "-test.run", f"^({chosen})$"]
    ended = subprocess.run(
        command + order["arguments"], cwd=order["folder"], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )
    with open(place.directory / "output", "a", encoding="utf-8") as output:
        output.write(ended.stdout)
    return ended.stdout.splitlines()


def shortened(lines):
    """The first and the last lines of a long text."""
    return "\n".join(lines if len(lines) <= 60 else [*lines[:30], "...", *lines[-30:]])


def tests_of_python(order, place, environment):
    """Runs tests of the source distribution, with stand-ins for unpublished modules. Returns their
    results."""
    strings = place.strings()
    reported = place.directory / "results.json"
    folder = Path(order["folder"])
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(HERE / "python"), str(folder)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SERVICEBUS_CONNECTION_STR": strings[ROOT],
        "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": HOST,
        "SERVICEBUS_SAS_POLICY": ROOT,
        "SERVICEBUS_SAS_KEY": place.standard.key,
        "OFFICIAL_RESULTS": str(reported),
        "OFFICIAL_ROOT": strings[ROOT],
        "OFFICIAL_SENDONLY": strings["SendOnly"],
        "OFFICIAL_LISTENONLY": strings["ListenOnly"],
    }
    command = [
        sys.executable, "-m", "pytest", "-p", "standins", "-p", "no:cacheprovider", "-q", "--tb=short", "--no-header",
        "-o", "asyncio_mode=auto", "-W", "ignore", "--rootdir", str(folder), *order["tests"],
    ]
    with open(place.directory / "output", "wb") as output:
        try:
            subprocess.run(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, check=False, timeout=order["timeout"],
            )
        except subprocess.TimeoutExpired:
            pass
    results = [json.loads(line) for line in reported.read_text().splitlines()] if reported.exists() else []
    seen = {result["name"] for result in results}
    text = (place.directory / "output").read_text(errors="replace")[-4000:]
    for test in order["tests"]:
        if test not in seen:
            results.append({"outcome": "failed", "name": test, "seconds": 0.0, "text": f"the test did not end\n{text}"})
    return results


def main():
    namespace.enter()
    order = json.loads(Path(sys.argv[1]).read_text())
    directory = Path(order["directory"])
    place = Place(order["program"], directory, order["needs"], order["key"])
    try:
        run = tests_of_go if order["language"] == "go" else tests_of_python
        results = run(order, place, place.environment())
    finally:
        for broker in place.brokers:
            broker.kill()
    panicked = [broker for broker in place.brokers if "panicked" in (broker.directory / "log").read_text(errors="replace")]
    (directory / "answer.json").write_text(json.dumps({"results": results, "panicked": bool(panicked)}))
    for broker in place.brokers:
        shutil.rmtree(broker.directory / "data", ignore_errors=True)


if __name__ == "__main__":
    main()
