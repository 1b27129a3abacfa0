"""Proton's engine over a socket, driven step by step: it sends nothing that a scenario did not
request, and received frames are checked after each step."""

import itertools
import selectors
import socket
import time

from proton import Connection, Delivery, Endpoint, Link, Message, Transport

# Maximum wait for expected frames, in seconds.
PATIENCE = 15
READ_BYTES = 65536
UNSETTLED, SETTLED, MIXED = Link.SND_UNSETTLED, Link.SND_SETTLED, Link.SND_MIXED
TAGS = itertools.count()
FIRST, SECOND = Link.RCV_FIRST, Link.RCV_SECOND


class Client:
    """A connection with one session, unless more are created."""

    def __init__(self, address, user=None, password=None, frame_bytes=None, idle=None, window_bytes=None):
        self.connection, self.transport = Connection(), Transport()
        # Received parts of incomplete deliveries, by link name.
        self.parts = {}
        if frame_bytes:
            self.transport.max_frame_size = frame_bytes
        if idle:
            self.transport.idle_timeout = idle
        self.connection.container, self.connection.hostname = "proton", "localhost"
        if user:
            self.connection.user, self.connection.password = user, password
        sasl = self.transport.sasl()
        sasl.allowed_mechs("PLAIN" if user else "ANONYMOUS")
        sasl.allow_insecure_mechs = True
        self.transport.bind(self.connection)
        host, _, port = address.partition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.socket, selectors.EVENT_READ)
        self.connection.open()
        self.session = self.new_session(window_bytes)

    def new_session(self, window_bytes=None):
        session = self.connection.session()
        if window_bytes:
            session.incoming_capacity = window_bytes
        session.open()
        return session

    def write(self):
        """Writes pending bytes."""
        while (count := self.transport.pending()) > 0:
            try:
                self.transport.pop(self.socket.send(self.transport.peek(count)))
            except BlockingIOError:
                return
            except OSError:
                self.transport.close_head()
                return

    def turn(self, seconds=0.05):
        """Writes, and reads for this time."""
        # The timers of the engine need the time in seconds.
        self.transport.tick(time.monotonic())
        self.write()
        if self.transport.capacity() < 0:
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.transport.pending() > 0 else 0)
        self.selector.modify(self.socket, wanted)
        for _, ready in self.selector.select(seconds):
            if ready & selectors.EVENT_READ:
                self.read()
        self.write()

    def read(self):
        try:
            data = self.socket.recv(min(READ_BYTES, self.transport.capacity()))
        except OSError:
            data = b""
        if data:
            self.transport.push(data)
        else:
            self.transport.close_tail()

    def until(self, condition, what, patience=PATIENCE):
        """Runs the engine until a condition holds. Returns its value."""
        end = time.monotonic() + patience
        while not (found := condition()):
            if time.monotonic() > end or self.transport.capacity() < 0:
                raise AssertionError(f"waited in vain: {what}; {self.transport.condition or self.connection.remote_condition}")
            self.turn()
        return found

    def passes(self, seconds):
        """Runs the engine for this time, to check that nothing arrives."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn()

    def sender(self, address, name=None, mode=UNSETTLED, session=None, credit=True):
        """An attached sender with credit."""
        link = (session or self.session).sender(name or f"to-{address}")
        link.source.address, link.target.address = "proton", address
        link.snd_settle_mode = mode
        self.open(link)
        if credit:
            self.until(lambda: link.credit > 0, "credit")
        return link

    def receiver(self, address, name=None, mode=UNSETTLED, settles=SECOND, session=None, source=None):
        """An attached receiver without credit."""
        link = (session or self.session).receiver(name or f"from-{address}")
        link.source.address, link.target.address = address, "proton"
        link.snd_settle_mode, link.rcv_settle_mode = mode, settles
        if source:
            source(link.source)
        return self.open(link)

    def open(self, link):
        link.open()
        self.until(lambda: link.state & Endpoint.REMOTE_ACTIVE, f"{link.name} is attached")
        return link

    def refused(self, link):
        """Attaches a link that the broker must refuse. Returns the reason."""
        link.open()
        self.until(lambda: link.state & Endpoint.REMOTE_CLOSED, f"{link.name} is refused")
        return link.remote_condition

    def send(self, link, message):
        """Sends without waiting. Returns the delivery."""
        message = message if isinstance(message, Message) else Message(body=message, inferred=True)
        delivery = link.delivery(str(next(TAGS)))
        link.stream(message.encode())
        link.advance()
        if link.snd_settle_mode == SETTLED:
            delivery.settle()
        return delivery

    def sent(self, link, *messages):
        """Sends, and waits until each message is accepted and settled."""
        deliveries = [self.send(link, message) for message in messages]
        self.until(lambda: all(delivery.settled for delivery in deliveries), "sends are answered")
        for delivery in deliveries:
            if delivery.remote_state != Delivery.ACCEPTED:
                raise AssertionError(f"answered with {delivery.remote_state}: {delivery.remote.condition}")
            delivery.settle()

    def arrived(self, link):
        """The next complete delivery with its message, or None. Reading received parts opens the
        window."""
        delivery = link.current
        if not delivery or not delivery.readable:
            return None
        parts = self.parts.setdefault(link.name, bytearray())
        while piece := link.recv(READ_BYTES):
            parts += piece
        if delivery.partial:
            return None
        message = Message()
        message.decode(bytes(self.parts.pop(link.name)))
        link.advance()
        return delivery, message

    def received(self, link, count):
        """Receives `count` deliveries with their messages; there must be credit."""
        found = []

        def enough():
            while pair := self.arrived(link):
                found.append(pair)
            return len(found) >= count

        self.until(enough, f"{count} messages from {link.name}")
        return found

    def settled(self, delivery, state):
        """Settles a delivery, and waits for the answer. Returns its state."""
        delivery.update(state)
        self.until(lambda: delivery.settled, "the settlement is answered")
        answer = delivery.remote_state
        delivery.settle()
        return answer

    def close(self):
        """Closes the connection in order."""
        self.connection.close()
        self.until(lambda: self.connection.state & Endpoint.REMOTE_CLOSED, "the connection is closed")
        self.write()
        self.drop()

    def drop(self):
        """Closes the socket without an AMQP close."""
        self.selector.close()
        self.socket.close()


def body(message):
    """The body as bytes, as it was sent."""
    return bytes(message.body) if isinstance(message.body, memoryview) else message.body


def bodies(received):
    return [body(message) for _, message in received]
