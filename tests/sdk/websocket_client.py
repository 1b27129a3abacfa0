"""A client of the WebSocket protocol, written from docs/reference/websocket.md alone.

python websocket_client.py ws://HOST:PORT

Uses both encodings as the document describes, on queues of its own. Ends with exit code 0 and
`ok` if everything agreed with the document."""

import asyncio
import json
import struct
import sys
import uuid

import websockets


class Lost(Exception):
    """The socket is closed."""


class Json:
    subprotocol = "peeklock.v1.json"

    def encode(self, seen, requests):
        parts = []
        for number, operation, body in requests:
            part = {operation: body}
            if number:
                part["id"] = number
            parts.append(part)
        return json.dumps({"seen": seen, "requests": parts})

    def decode(self, frame):
        frame = json.loads(frame)
        items = []
        for item in frame["items"]:
            number = item.pop("id", 0)
            ((kind, body),) = item.items()
            items.append((number, kind, body))
        return frame.get("seen", 0), items


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, count):
        assert self.at + count <= len(self.data), "truncated"
        part = self.data[self.at : self.at + count]
        self.at += count
        return part

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))[0]

    def u8(self):
        return self.number("B")

    def u32(self):
        return self.number("I")

    def u64(self):
        return self.number("Q")

    def i64(self):
        return self.number("q")

    def bytes(self):
        return self.take(self.u32())

    def text(self):
        return self.bytes().decode()

    def guid(self):
        return str(uuid.UUID(bytes=self.take(16)))

    def option(self, read):
        return read() if self.u8() else None

    def list(self, read):
        return [read() for _ in range(self.u32())]


def u32(value):
    return struct.pack(">I", value)


def u64(value):
    return struct.pack(">Q", value)


def packed(data):
    return u32(len(data)) + data


def text(value):
    return packed(value.encode())


def option(value, write):
    return b"\0" if value is None else b"\1" + write(value)


def listed(values, write):
    return u32(len(values)) + b"".join(write(value) for value in values)


def data_section(body):
    """The smallest message in AMQP sections: its body as a data section."""
    if len(body) < 256:
        return b"\0\x53\x75\xa0" + bytes([len(body)]) + body
    return b"\0\x53\x75\xb0" + u32(len(body)) + body


def body_of(content):
    """Body of a message whose last section is its only data section, like the messages that this
    client sends."""
    at = content.index(b"\0\x53\x75")
    if content[at + 3] == 0xA0:
        return content[at + 5 :]
    return content[at + 8 :]


class Binary:
    subprotocol = "peeklock.v1.binary"
    decisions = ["complete", "abandon", "defer", "deadLetter", "release"]

    def encode(self, seen, requests):
        parts = []
        for number, operation, body in requests:
            code, data = getattr(self, operation)(body)
            parts.append(packed(bytes([code]) + u32(number) + data))
        return u64(seen) + u32(len(parts)) + b"".join(parts)

    def hello(self, body):
        def resume(value):
            return uuid.UUID(value["resumeToken"]).bytes + u64(value["received"])

        return 1, (
            option(body.get("token"), text)
            + option(body.get("client"), text)
            + option(body.get("heartbeatSeconds"), u32)
            + option(body.get("graceSeconds"), u32)
            + option(body.get("resume"), resume)
        )

    def attach(self, body):
        role = ["sender", "receiver"].index(body["role"])
        mode = ["peekLock", "receiveAndDelete"].index(body.get("mode", "peekLock"))
        head = u32(body["link"]) + text(body["path"]) + bytes([role, mode])
        return 3, head + option(body.get("credit"), u32)

    def credit(self, body):
        return 5, u32(body["link"]) + u32(body["upTo"])

    def send(self, body):
        messages = [data_section(message["body"].encode()) for message in body["messages"]]
        return 7, u32(body["link"]) + listed(messages, packed)

    def receive(self, body):
        wait = struct.pack(">d", body["waitSeconds"])
        return 10, u32(body["link"]) + u32(body["maxCount"]) + wait

    def settle(self, body):
        ranges = listed(body.get("ranges", []), lambda pair: u32(pair[0]) + u32(pair[1]))
        tokens = listed(body.get("lockTokens", []), lambda token: uuid.UUID(token).bytes)
        return 13, (
            u32(body["link"])
            + bytes([self.decisions.index(body["decision"])])
            + ranges
            + tokens
            + option(None, packed)
            + option(body.get("reason"), text)
            + option(body.get("description"), text)
        )

    def peek(self, body):
        return 15, u32(body["link"]) + u64(body["from"]) + u32(body["maxCount"])

    def createQueue(self, body):
        properties = json.dumps(body.get("properties", {})).encode()
        return 19, text(body["path"]) + packed(properties)

    def getQueue(self, body):
        return 20, text(body["path"])

    def heartbeat(self, body):
        return 24, b""

    def decode(self, frame):
        reader = Reader(frame)
        seen = reader.u64()
        items = []
        for _ in range(reader.u32()):
            part = Reader(reader.bytes())
            code, number = part.u8(), part.u32()
            kind, body = self.read(code, part)
            assert part.at == len(part.data), f"{kind} has more than is described"
            items.append((number, kind, body))
        assert reader.at == len(frame)
        return seen, items

    def read(self, code, part):
        def error():
            return {
                "condition": part.text(),
                "retryable": bool(part.u8()),
                "trackingId": part.guid(),
                "detail": part.text(),
                "entity": part.text(),
                "timestamp": part.i64(),
            }

        def failed():
            return {"from": part.u32(), "to": part.u32(), "error": error()}

        def message():
            flags, state = part.u8(), part.u8()
            read = {
                "state": ["Active", "Deferred", "Scheduled"][state],
                "sequenceNumber": part.u64(),
                "enqueuedSequenceNumber": part.u64(),
                "enqueuedTimeUtc": part.i64(),
                "deliveryCount": part.u32(),
                "size": part.u32(),
            }
            if flags & 1:
                read["lockToken"], read["lockedUntilUtc"] = part.guid(), part.i64()
            if flags & 2:
                read["expiresAtUtc"] = part.i64()
            if flags & 4:
                read["timeToLive"] = part.i64()
            read["body"] = body_of(part.bytes()).decode()
            part.list(part.bytes)
            return read

        if code == 1:
            return "done", {}
        if code == 2:
            return "error", error()
        if code == 3:
            return "welcome", {
                "resumed": bool(part.u8()),
                "received": part.u64(),
                "resumeToken": part.option(part.guid),
                "graceSeconds": part.u32(),
                "heartbeatSeconds": part.u32(),
                "nowUtc": part.i64(),
                "namespace": part.text(),
                "server": part.text(),
                "frameBytesMax": part.u64(),
                "commandCountMax": part.u32(),
                "linkCountMax": part.u32(),
                "unsettledCountMax": part.u32(),
            }
        if code == 4:
            numbers = part.list(lambda: [part.u64(), part.u32()])
            failures = part.list(lambda: {"index": part.u32(), "error": error()})
            return "accepted", {"sequenceNumbers": numbers, "failed": failures}
        if code == 5:
            return "settled", {"failed": part.list(failed)}
        if code == 7:
            return "received", {"messages": part.list(message)}
        if code == 10:
            return "queue", json.loads(part.bytes())
        if code == 32:
            link, first = part.u32(), part.u32()
            return "deliveries", {"link": link, "first": first, "messages": part.list(message)}
        if code == 33:
            return "detached", {"link": part.u32(), "error": error()}
        if code == 34:
            return "heartbeat", {}
        if code == 35:
            return "closing", {"seconds": part.u32()}
        raise AssertionError(f"a code {code} that is not described here")


class Client:
    """One connection, resumed when its socket is lost."""

    def __init__(self, url, encoding):
        self.url = url
        self.encoding = encoding
        self.token = None
        self.seen = 0
        self.sent = 0
        self.kept = []
        self.answers = {}
        self.pushes = []
        self.next_id = 2

    async def connect(self):
        names = [self.encoding.subprotocol]
        self.socket = await websockets.connect(
            self.url, subprotocols=names, compression=None, max_size=None
        )
        assert self.socket.subprotocol == self.encoding.subprotocol
        hello = {"client": "python", "graceSeconds": 30}
        if self.token:
            hello["resume"] = {"resumeToken": self.token, "received": self.seen}
        await self.socket.send(self.encoding.encode(0, [(1, "hello", hello)]))
        _, ((number, kind, welcome),) = self.encoding.decode(await self.socket.recv())
        assert (number, kind) == (1, "welcome"), (kind, welcome)
        assert welcome["resumed"] == bool(self.token)
        self.token = welcome["resumeToken"]
        self.confirm(welcome["received"])
        for frame in self.kept:
            await self.socket.send(frame)
        return welcome

    def confirm(self, seen):
        while self.sent - len(self.kept) < seen:
            self.kept.pop(0)

    async def cut(self):
        """Drops the socket and resumes over another."""
        self.socket.transport.abort()
        await self.connect()

    async def write(self, requests):
        frame = self.encoding.encode(self.seen, requests)
        self.sent += 1
        self.kept.append(frame)
        await self.socket.send(frame)

    async def begin(self, operation, **body):
        number = self.next_id
        self.next_id += 1
        await self.write([(number, operation, body)])
        return number

    async def ask(self, operation, **body):
        return await self.answer(await self.begin(operation, **body))

    async def answer(self, number):
        while number not in self.answers:
            await self.take()
        return self.answers.pop(number)

    async def take(self):
        seen, items = self.encoding.decode(await self.socket.recv())
        self.seen += 1
        self.confirm(seen)
        for number, kind, body in items:
            if number:
                assert number not in self.answers, "answered twice"
                self.answers[number] = (kind, body)
            else:
                self.pushes.append((kind, body))

    def delivered(self, link):
        """Deliveries received on a link, by number."""
        messages = {}
        for kind, body in self.pushes:
            if kind == "deliveries" and body["link"] == link:
                for place, message in enumerate(body["messages"]):
                    number = body["first"] + place
                    assert number not in messages, "delivered twice"
                    messages[number] = message
        return messages

    async def deliveries(self, link, count):
        while len(self.delivered(link)) < count:
            await self.take()
        return self.delivered(link)

    async def close(self):
        await self.socket.close(1000)


def expand(runs):
    numbers = []
    for first, count in runs:
        numbers.extend(first + place if first else 0 for place in range(count))
    return numbers


async def both(url, encoding):
    """Requests and answers in both encodings."""
    queue = "python-" + encoding.subprotocol.rsplit(".", 1)[1]
    client = Client(url, encoding)
    welcome = await client.connect()
    assert welcome["heartbeatSeconds"] >= 1 and welcome["frameBytesMax"] > 0
    kind, body = await client.ask("createQueue", path=queue, properties={"lockDuration": "PT30S"})
    assert kind == "queue" and body["lockDuration"] == "PT30S", (kind, body)
    kind, body = await client.ask("attach", link=9, path="absent", role="sender")
    assert (kind, body["condition"], body["retryable"]) == ("error", "EntityNotFound", False)

    assert (await client.ask("attach", link=1, path=queue, role="sender"))[0] == "done"
    messages = [{"body": str(number)} for number in range(5)]
    kind, body = await client.ask("send", link=1, messages=messages)
    assert kind == "accepted" and expand(body["sequenceNumbers"]) == [1, 2, 3, 4, 5], body

    await client.ask("attach", link=2, path=queue, role="receiver", credit=3)
    held = await client.deliveries(2, 3)
    assert [held[number]["body"] for number in (1, 2, 3)] == ["0", "1", "2"]
    assert all(message["deliveryCount"] == 1 for message in held.values())
    kind, body = await client.ask("settle", link=2, decision="complete", ranges=[[1, 2]])
    assert (kind, body.get("failed", [])) == ("settled", [])
    kind, body = await client.ask("settle", link=2, decision="complete", ranges=[[2, 2], [8, 9]])
    named = [(one["from"], one["to"], one["error"]["condition"]) for one in body["failed"]]
    assert named == [(2, 2, "MessageLockLost"), (8, 9, "MessageLockLost")], named
    kind, body = await client.ask(
        "settle", link=2, decision="deadLetter", ranges=[[3, 3]], reason="poison"
    )
    assert (kind, body.get("failed", [])) == ("settled", [])
    await client.write([(0, "credit", {"link": 2, "upTo": 5})])
    held = await client.deliveries(2, 5)
    assert [held[number]["body"] for number in (4, 5)] == ["3", "4"]
    tokens = [held[number]["lockToken"] for number in (4, 5)]
    kind, body = await client.ask("settle", link=2, decision="complete", lockTokens=tokens)
    assert (kind, body.get("failed", [])) == ("settled", [])

    await client.ask("attach", link=3, path=queue + "/$deadletterqueue", role="receiver")
    kind, body = await client.ask("peek", link=3, **{"from": 0, "maxCount": 10})
    assert [message["body"] for message in body["messages"]] == ["2"], body
    kind, body = await client.ask("receive", link=3, maxCount=10, waitSeconds=0)
    (message,) = body["messages"]
    tokens = [message["lockToken"]]
    await client.ask("settle", link=3, decision="complete", lockTokens=tokens)
    kind, body = await client.ask("getQueue", path=queue)
    assert body["runtime"]["totalMessageCount"] == 0, body

    # Cuts between and after frames lose and double nothing.
    await client.cut()
    await client.write([(0, "credit", {"link": 2, "upTo": 1_000})])
    pending = []
    for number in range(20):
        pending.append(await client.begin("send", link=1, messages=[{"body": f"r{number}"}]))
        if number % 3 == 0:
            await client.cut()
        if number % 4 == 0:
            await client.take()
            await client.cut()
    numbers = []
    for number in pending:
        kind, body = await client.answer(number)
        numbers.extend(expand(body["sequenceNumbers"]))
    assert numbers == list(range(6, 26)), numbers
    held = await client.deliveries(2, 25)
    bodies = [held[number]["body"] for number in range(6, 26)]
    assert bodies == [f"r{number}" for number in range(20)], bodies
    assert all(message["deliveryCount"] == 1 for message in held.values())
    kind, body = await client.ask("settle", link=2, decision="complete", ranges=[[6, 25]])
    assert (kind, body.get("failed", [])) == ("settled", [])
    await client.close()


async def json_only(url):
    """Requests that this client encodes only in JSON."""
    client = Client(url, Json())
    await client.connect()
    queue = "python-more"
    await client.ask("createQueue", path=queue)
    await client.ask("attach", link=1, path=queue, role="sender")
    await client.ask("attach", link=2, path=queue, role="receiver", credit=0)
    later = [{"body": "later", "scheduledEnqueueTimeUtc": "2199-01-01T00:00:00Z"}]
    kind, body = await client.ask("send", link=1, messages=later)
    numbers = expand(body["sequenceNumbers"])
    assert (await client.ask("cancelScheduled", link=1, sequenceNumbers=numbers))[0] == "done"
    typed = {"size": {"type": "i32", "value": 7}, "colour": "red"}
    message = {"bodyBase64": "AAEC/w==", "subject": "x", "applicationProperties": typed}
    kind, body = await client.ask("sendBatch", link=1, messages=[message, {"body": "b"}])
    assert expand(body["sequenceNumbers"]) == [2, 3], body
    await client.write([(0, "credit", {"link": 2, "upTo": 5})])
    kind, body = await client.ask("drain", link=2)
    assert (kind, body) == ("drained", {"unused": 3}), (kind, body)
    held = client.delivered(2)
    assert held[1]["bodyBase64"] == "AAEC/w==" and held[1]["applicationProperties"] == typed
    kind, body = await client.ask("renew", link=2, ranges=[[1, 2]])
    assert kind == "renewed" and "lockedUntilUtc" in body
    kind, body = await client.ask("settle", link=2, decision="defer", ranges=[[1, 1]])
    kind, body = await client.ask("receiveDeferred", link=2, sequenceNumbers=[2])
    assert body["messages"][0]["state"] == "Deferred"
    await client.ask(
        "settle",
        link=2,
        decision="abandon",
        ranges=[[2, 2]],
        properties={"cause": "busy"},
    )
    waiting = await client.begin("receive", link=2, maxCount=1, waitSeconds=60)
    kind, body = await client.answer(waiting)
    again = body["messages"][0]
    assert (again["deliveryCount"], again["applicationProperties"]) == (2, {"cause": "busy"})
    waiting = await client.begin("receive", link=2, maxCount=1, waitSeconds=60)
    await client.ask("withdraw", request=waiting)
    assert (await client.answer(waiting))[1] == {"messages": []}
    assert (await client.ask("detach", link=2, release=True))[0] == "done"
    kind, body = await client.ask("getQueue", path=queue)
    counts = body["runtime"]
    assert (counts["activeMessageCount"], counts["deferredMessageCount"]) == (1, 1), counts
    await client.ask("attach", link=2, path=queue, role="receiver")
    assert await client.ask("purge", link=2) == ("deleted", {"count": 1})
    kind, body = await client.ask("updateQueue", path=queue, properties={"maxDeliveryCount": 2})
    assert body["maxDeliveryCount"] == 2
    kind, body = await client.ask("listQueues")
    assert queue in [one["path"] for one in body["queues"]]
    assert (await client.ask("deleteQueue", path=queue))[0] == "done"
    await client.close()


async def main(url):
    await both(url, Json())
    await both(url, Binary())
    await json_only(url)
    print("ok")


asyncio.run(main(sys.argv[1]))
