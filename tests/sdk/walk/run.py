"""Two teams on a machine of their own use a broker on another machine: `run.py PROGRAM NODE`.

The commands in docs/how-to/use-tls.md set up the broker.

One team sends with the Python SDK and a policy that may only send, the other receives with the
JavaScript SDK and a policy that may only listen. The machines are namespaces with a network
between them. Ends with a line `ok N scenarios`, or prints the failures."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "python"))

import namespace
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthorizationError, ServiceBusError

NAME, ADDRESS, TEAMS = "bus.lan", "10.77.0.1", "10.77.0.2"
RECEIVER = Path(__file__).parent / "receive.mjs"
DOCUMENT = Path(__file__).parents[3] / "docs/how-to/use-tls.md"
ALL = []


def scenario(function):
    ALL.append(function)
    return function


def that(condition, what):
    if not condition:
        raise AssertionError(what)


def commands():
    """The commands that the document lists for teams on other machines, for the user of this test,
    with the data in a subdirectory."""
    _, found, rest = DOCUMENT.read_text().partition("For teams on other machines")
    that(found, "the document tells of no teams on other machines")
    block = rest.split("```sh by-hand\n")[1].split("```")[0].replace(" \\\n ", "")
    lines = [line.removeprefix("sudo -u peeklock ") for line in block.splitlines()]
    return [line.replace("/var/lib/peeklock", "data") for line in lines]


def clean(**more):
    """An environment without settings of a broker, or proxies."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith("PEEKLOCK") and not name.upper().endswith("_PROXY")
    }
    return {**kept, **more}


class Machine:
    """The machine of the broker: a network namespace, connected to the network of the teams, in
    which this process runs."""

    def __init__(self, program, directory):
        self.program, self.directory = program, directory
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        self.inside = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]
        for command in [
            ["ip", "link", "add", "name", "team", "type", "veth", "peer", "name", "bus", "netns", str(self.holder.pid)],
            ["ip", "address", "add", f"{TEAMS}/24", "dev", "team"],
            ["ip", "link", "set", "team", "up"],
            [*self.inside, "ip", "address", "add", f"{ADDRESS}/24", "dev", "bus"],
            [*self.inside, "ip", "link", "set", "bus", "up"],
            [*self.inside, "ip", "link", "set", "lo", "up"],
        ]:
            subprocess.run(command, check=True)
        self.broker = None

    def shell(self, line):
        """Arguments that run a shell command there, with the program on the path."""
        path = f"{Path(self.program).parent}:{os.environ['PATH']}"
        return {"args": [*self.inside, "sh", "-c", line], "cwd": self.directory, "env": clean(PATH=path)}

    def typed(self, line):
        """Output of a shell command there."""
        ended = subprocess.run(**self.shell(line), capture_output=True, text=True, check=False, timeout=30)
        if ended.returncode != 0:
            raise RuntimeError(f"{line}: {ended.returncode} {ended.stderr}")
        return ended.stdout.strip()

    def run(self, *arguments):
        """Output of a command of the program."""
        return self.typed(shlex.join(["peeklock", *arguments]))

    def serve(self, line):
        """Starts a broker with this command line. The shell replaces itself, so that signals reach
        the broker."""
        with open(self.directory / "log", "ab") as log:
            self.broker = subprocess.Popen(**self.shell(f"exec env {line}"), stdout=subprocess.PIPE, stderr=log)
        if not any(line.split()[:1] == [b"amqp"] for line in self.broker.stdout):
            raise RuntimeError((self.directory / "log").read_text())

    def end(self):
        for process in [self.broker, self.holder]:
            if process is not None:
                process.kill()
                process.wait()


class World:
    """The files of the teams, and their actions."""

    def __init__(self, machine, node, shop, kitchen):
        self.machine, self.node = machine, node
        self.authority = machine.directory / "authority.pem"
        self.shop, self.kitchen = shop, kitchen

    def send(self, string, *bodies, **options):
        options = {"connection_verify": str(self.authority), "retry_total": 0, **options}
        with ServiceBusClient.from_connection_string(string, **options) as client:
            with client.get_queue_sender("orders") as sender:
                for body in bodies:
                    sender.send_messages(ServiceBusMessage(body))

    def javascript(self, what, string, authority=None):
        """The output of the other program."""
        trusted = {"NODE_EXTRA_CA_CERTS": str(authority)} if authority else {}
        ended = subprocess.run(
            [self.node, str(RECEIVER), what, string], env=clean(**trusted),
            capture_output=True, text=True, check=False, timeout=60,
        )
        that(ended.returncode == 0, ended.stderr)
        return json.loads(ended.stdout)


def refused(kind, action):
    try:
        action()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was refused")


@scenario
def one_team_receives_messages_of_the_other(w):
    w.send(w.shop, "two coffees", "one tea")
    told = w.javascript("receive", w.kitchen, w.authority)
    that(told == {"bodies": ["two coffees", "one tea"]}, told)
    shown = w.machine.run("queue", "show", "orders", "--data-dir", "data", "-o", "json")
    that(json.loads(shown)["runtime"]["totalMessageCount"] == 0, shown)


@scenario
def a_sender_cannot_receive(w):
    def receive():
        with ServiceBusClient.from_connection_string(w.shop, connection_verify=str(w.authority), retry_total=0) as client:
            with client.get_queue_receiver("orders") as receiver:
                receiver.receive_messages(max_wait_time=5)

    that("Listen" in refused(ServiceBusAuthorizationError, receive), "the right is not named")


@scenario
def a_receiver_cannot_send(w):
    told = w.javascript("send", w.kitchen, w.authority)
    that(told["code"] == "UnauthorizedAccess" and "Send" in told["message"], told)


@scenario
def a_policy_is_for_its_queue_alone(w):
    w.machine.run("queue", "create", "other", "--data-dir", "data")
    anywhere = w.shop.replace("EntityPath=orders", "EntityPath=other")

    def send():
        with ServiceBusClient.from_connection_string(anywhere, connection_verify=str(w.authority), retry_total=0) as client:
            with client.get_queue_sender("other") as sender:
                sender.send_messages(ServiceBusMessage("x"))

    refused(ServiceBusError, send)


@scenario
def a_client_without_the_authority_sends_nothing(w):
    told = refused(ServiceBusError, lambda: w.send(w.shop, "x", connection_verify=None))
    that("CERTIFICATE_VERIFY_FAILED" in told, told)
    told = w.javascript("receive", w.kitchen)
    that("certificate" in told["message"], told)


@scenario
def a_client_without_tls_is_closed(w):
    that(f"sb://{NAME}:5671;" in w.shop, w.shop)
    refused(ServiceBusError, lambda: w.send(w.shop + ";UseDevelopmentEmulator=true", "x"))


def main():
    namespace.enter()
    program, node = sys.argv[1:]
    failed = []
    with tempfile.TemporaryDirectory(prefix="peeklock-walk-") as place:
        directory = Path(place)
        namespace.over(Path("/etc/hosts"), directory / "hosts", f"127.0.0.1 localhost\n{ADDRESS} {NAME}\n")
        machine = Machine(program, directory)
        try:
            strings = []
            for line in commands():
                if " serve " in line:
                    # The command serves AMQP to other machines, and requires a key.
                    machine.serve(line)
                    continue
                said = machine.typed(line)
                if said.startswith("Endpoint="):
                    strings.append(said)
            world = World(machine, node, *strings)
            for function in ALL:
                try:
                    function(world)
                except Exception:  # pylint: disable=broad-except
                    failed.append(function.__name__)
                    print(f"--- {function.__name__}\n{traceback.format_exc()}")
        finally:
            machine.end()
        log = (directory / "log").read_text()
    if failed or "panicked" in log:
        print(f"{len(failed)} of {len(ALL)} scenarios failed\n{log}")
        sys.exit(1)
    print(f"ok {len(ALL)} scenarios")


if __name__ == "__main__":
    main()
