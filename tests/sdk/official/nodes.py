"""Queues on demand, for a suite that was written for a broker that creates a queue for every
address that a client names.

A proxy between client and broker reads each frame of the client, and creates the queue of an
`attach` before it passes the frame on. Characters that Service Bus does not allow in names of
queues become hyphens, so that the frame keeps its length."""

import asyncio
import re
import threading

ATTACH = b"\x00\x53\x12"
# A source or a target whose first field is an address of up to 255 bytes.
TERMINUS = re.compile(rb"\x00\x53[\x28\x29](?:\xc0..|\xd0.{8})\xa1(.)", re.DOTALL)
FORBIDDEN = re.compile(rb"[^A-Za-z0-9._-]")


class Nodes:
    """Listens at a free port of loopback until the process ends."""

    def __init__(self, broker_port, create):
        self.broker_port = broker_port
        self.create = create
        self.created = set()
        self.port = None
        ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.serve(ready)), daemon=True).start()
        ready.wait()

    async def serve(self, ready):
        server = await asyncio.start_server(self.connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await server.serve_forever()

    async def connected(self, reader, writer):
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self.broker_port)
        await asyncio.gather(self.frames(reader, broker_writer), self.bytes(broker_reader, writer))

    async def bytes(self, reader, writer):
        """Frames of the broker are passed on unchanged."""
        try:
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    async def frames(self, reader, writer):
        try:
            while True:
                head = await reader.readexactly(8)
                if head.startswith(b"AMQP"):
                    writer.write(head)
                    continue
                body = await reader.readexactly(int.from_bytes(head[:4], "big") - 8)
                if body.startswith(ATTACH):
                    body = await self.attached(body)
                writer.write(head + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        writer.close()

    async def attached(self, body):
        """The frame with valid names of queues, which are created."""
        for match in TERMINUS.finditer(body):
            start, length = match.end(), match.group(1)[0]
            name = FORBIDDEN.sub(b"-", body[start:start + length])
            body = body[:start] + name + body[start + length:]
            if name not in self.created:
                self.created.add(name)
                await asyncio.to_thread(self.create, name.decode())
        return body
