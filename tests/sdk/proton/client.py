"""Proton's engine over a socket, turned by hand: nothing is said that a scenario did not ask for, and what is said is looked at after each
turn."""

import itertools
import selectors
import socket
import time

from proton import Connection, Delivery, Endpoint, Link, Message, Transport

# How long what must come is waited for.
PATIENCE = 15
READ_BYTES = 65536
UNSETTLED, SETTLED, MIXED = Link.SND_UNSETTLED, Link.SND_SETTLED, Link.SND_MIXED
TAGS = itertools.count()
FIRST, SECOND = Link.RCV_FIRST, Link.RCV_SECOND


class Client:
    """A connection with one session, unless more are made."""

    def __init__(self, address, user=None, password=None, frame_bytes=None, idle=None, window_bytes=None):
        self.connection, self.transport = Connection(), Transport()
        # What has come of deliveries that are not whole, by the name of their link.
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
        """Says what there is to say."""
        while (count := self.transport.pending()) > 0:
            try:
                self.transport.pop(self.socket.send(self.transport.peek(count)))
            except BlockingIOError:
                return
            except OSError:
                self.transport.close_head()
                return

    def turn(self, seconds=0.05):
        """Writes, and reads what comes within this time."""
        # The timers of the engine want a clock, in seconds.
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
        """Turns until something is so; what it is."""
        end = time.monotonic() + patience
        while not (found := condition()):
            if time.monotonic() > end or self.transport.capacity() < 0:
                raise AssertionError(f"waited in vain: {what}; {self.transport.condition or self.connection.remote_condition}")
            self.turn()
        return found

    def passes(self, seconds):
        """Turns for so long, for what must not come."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn()

    def sender(self, address, name=None, mode=UNSETTLED, session=None, credit=True):
        """A link to send on that is open, with credit."""
        link = (session or self.session).sender(name or f"to-{address}")
        link.source.address, link.target.address = "proton", address
        link.snd_settle_mode = mode
        self.open(link)
        if credit:
            self.until(lambda: link.credit > 0, "credit")
        return link

    def receiver(self, address, name=None, mode=UNSETTLED, settles=SECOND, session=None, source=None):
        """A link to receive from that is open, without credit."""
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
        """Opens a link that the broker must refuse; why it did."""
        link.open()
        self.until(lambda: link.state & Endpoint.REMOTE_CLOSED, f"{link.name} is refused")
        return link.remote_condition

    def send(self, link, message):
        """Sends without waiting; the delivery."""
        message = message if isinstance(message, Message) else Message(body=message, inferred=True)
        delivery = link.delivery(str(next(TAGS)))
        link.stream(message.encode())
        link.advance()
        if link.snd_settle_mode == SETTLED:
            delivery.settle()
        return delivery

    def sent(self, link, *messages):
        """Sends, and waits until each is accepted for good."""
        deliveries = [self.send(link, message) for message in messages]
        self.until(lambda: all(delivery.settled for delivery in deliveries), "sends are answered")
        for delivery in deliveries:
            if delivery.remote_state != Delivery.ACCEPTED:
                raise AssertionError(f"answered with {delivery.remote_state}: {delivery.remote.condition}")
            delivery.settle()

    def arrived(self, link):
        """The next delivery that is here whole, with its message; or none. What is here of it is taken, which opens the window."""
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
        """So many deliveries with their messages, for which there is credit."""
        found = []

        def enough():
            while pair := self.arrived(link):
                found.append(pair)
            return len(found) >= count

        self.until(enough, f"{count} messages from {link.name}")
        return found

    def settled(self, delivery, state):
        """Says what becomes of a delivery, and waits for the answer; the state in it."""
        delivery.update(state)
        self.until(lambda: delivery.settled, "the settlement is answered")
        answer = delivery.remote_state
        delivery.settle()
        return answer

    def close(self):
        """In order."""
        self.connection.close()
        self.until(lambda: self.connection.state & Endpoint.REMOTE_CLOSED, "the connection is closed")
        self.write()
        self.drop()

    def drop(self):
        """The socket, without a word."""
        self.selector.close()
        self.socket.close()


def body(message):
    """As bytes, which is how they are sent."""
    return bytes(message.body) if isinstance(message.body, memoryview) else message.body


def bodies(received):
    return [body(message) for _, message in received]
