"""Features of AMQP 1.0 that the Azure SDKs never use."""

import socket
import struct
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from proton import (
    Condition, Delivery, Described, Endpoint, Message, Terminus, byte, char, float32, int32, short, symbol, timestamp,
    ubyte, uint, ulong, ushort,
)

from broker import ROOT
from client import FIRST, MIXED, SECOND, SETTLED, UNSETTLED, Client, bodies, body

SCENARIOS = []
# Seconds to wait for frames that must not arrive.
QUIET = 0.5
# The broker's setting amqp.link_count_max: a share for each connection, and a step of the shared
# rest.
LINKS_MAX = 300


def scenario(*requirements):
    """Registers a scenario with the requirements that it proves."""

    def register(function):
        SCENARIOS.append((function, requirements))
        return function

    return register


def check(value, expected, what="value"):
    if value != expected:
        raise AssertionError(f"{what} is {value!r}, not {expected!r}")


def that(condition, what):
    if not condition:
        raise AssertionError(what)


def numbers(count):
    return [str(number).encode() for number in range(count)]


# Sending


@scenario("AMQP-41", "SND-10")
def pre_settled_sends_are_stored_and_not_answered(w):
    queue, client = w.queue(), w.client()
    link = client.sender(queue, mode=SETTLED)
    sent = [client.send(link, number) for number in numbers(10)]
    w.until(lambda: w.count(queue) == 10, client)
    that(not any(delivery.remote_state for delivery in sent), "a pre-settled send was answered")
    receiver = client.receiver(queue)
    receiver.flow(10)
    check(bodies(client.received(receiver, 10)), numbers(10))


@scenario("AMQP-41")
def settled_and_unsettled_sends_go_on_one_link(w):
    queue, client = w.queue(), w.client()
    link = client.sender(queue, mode=MIXED)
    check(link.remote_snd_settle_mode, MIXED, "the mode")
    before = client.send(link, b"before")
    without = client.send(link, b"without an answer")
    without.settle()
    after = client.send(link, b"after")
    client.until(lambda: before.settled and after.settled, "both are answered")
    check((before.remote_state, after.remote_state), (Delivery.ACCEPTED, Delivery.ACCEPTED))
    check(w.count(queue), 3)


@scenario("AMQP-41", "AMQP-40")
def each_of_a_thousand_sends_is_answered_once_and_credit_comes_back(w):
    queue, client = w.queue(), w.client()
    link = client.sender(queue)
    left, under_way = numbers(3_000), []
    while left:
        client.until(lambda: link.credit > 0, "credit")
        while link.credit > 0 and left:
            under_way.append(client.send(link, left.pop()))
        client.turn()
    client.until(lambda: all(delivery.settled for delivery in under_way), "all are answered")
    check({delivery.remote_state for delivery in under_way}, {Delivery.ACCEPTED})
    check(w.count(queue), 3_000)


@scenario("AMQP-05", "AMQP-31")
def a_message_of_many_small_frames_arrives_whole_both_ways(w):
    queue, client = w.queue(), w.client(frame_bytes=512)
    large = bytes(range(256)) * 2_000
    client.sent(client.sender(queue), large)
    receiver = client.receiver(queue)
    receiver.flow(1)
    [(delivery, message)] = client.received(receiver, 1)
    that(body(message) == large, "the body differs")
    # The engine would have closed on a frame above its announced size.
    check(client.settled(delivery, Delivery.ACCEPTED), Delivery.ACCEPTED)
    client.close()


@scenario("AMQP-45")
def a_message_that_is_sent_in_pieces_is_stored_when_it_is_whole(w):
    queue, client = w.queue(), w.client()
    link = client.sender(queue)
    encoded = Message(body=b"x" * 5_000, inferred=True).encode()
    delivery = link.delivery("pieces")
    for start in range(0, len(encoded), 500):
        check(w.count(queue), 0, "messages before it is whole") if start == 2_500 else None
        link.stream(encoded[start:start + 500])
        client.turn(0.01)
    link.advance()
    client.until(lambda: delivery.settled, "it is answered")
    check((delivery.remote_state, w.count(queue)), (Delivery.ACCEPTED, 1))


@scenario("AMQP-41", "AMQP-45")
def a_message_that_is_aborted_was_never_sent(w):
    queue, client = w.queue(), w.client()
    link = client.sender(queue)
    delivery = link.delivery("aborted")
    link.stream(b"\x00\x53\x75\xb0\x00\x01\x00\x00half of it")
    client.passes(0.1)
    delivery.abort()
    client.sent(link, b"whole")
    check(w.count(queue), 1)
    receiver = client.receiver(queue)
    receiver.flow(1)
    check(bodies(client.received(receiver, 1)), [b"whole"])


@scenario("AMQP-43")
def a_message_above_the_limit_is_rejected_and_the_link_continues(w):
    queue, client = w.queue(), w.client()
    link = client.sender(queue)
    that(0 < link.remote_max_message_size < 1 << 31, f"{link.remote_max_message_size} is told")
    delivery = client.send(link, b"x" * (link.remote_max_message_size + 1))
    client.until(lambda: delivery.settled, "it is answered")
    check(delivery.remote_state, Delivery.REJECTED)
    check(delivery.remote.condition.name, "amqp:link:message-size-exceeded")
    client.sent(link, b"small")
    check(w.count(queue), 1)


@scenario("SND-16", "SND-18")
def a_settled_send_that_cannot_be_stored_is_counted_and_logged(w):
    queue, client = w.queue(), w.client()
    link = client.sender(queue, mode=SETTLED)
    dropped = w.broker.metric("peeklock_messages_dropped_total")
    too_large = client.send(link, b"x" * (link.remote_max_message_size * 2))
    wrong = client.send(link, Message(body=b"wrong", group_id="s" * 129, inferred=True))
    client.send(link, b"small")
    w.until(lambda: w.count(queue) == 1, client)
    check([too_large.remote_state, wrong.remote_state, bool(link.state & Endpoint.REMOTE_ACTIVE)], [0, 0, True])
    counted = w.broker.metric("peeklock_messages_dropped_total") - dropped
    that(counted >= 2, f"{counted} were counted")
    told = [line for line in (w.broker.directory / "log").read_text().splitlines() if queue in line]
    that(len(told) == 1 and "TrackingId:" in told[0], f"an operator reads {told}")


@scenario("AMQP-14", "AMQP-41")
def invalid_messages_are_rejected(w):
    queue, client = w.queue(), w.client()
    link = client.sender(queue)
    delivery = link.delivery("noise")
    link.stream(b"\xff\xfe no section of any message")
    link.advance()
    client.until(lambda: delivery.settled or link.state & Endpoint.REMOTE_CLOSED, "it is answered")
    check((delivery.settled, delivery.remote_state), (True, Delivery.REJECTED))
    that(delivery.remote.condition is not None, "rejected without an error")
    client.sent(link, b"a message")
    check(w.count(queue), 1)


@scenario("AMQP-45", "AMQP-56")
def values_of_every_type_come_back_as_they_were_sent(w):
    queue, client = w.queue(), w.client()
    values = {
        "boolean": True, "ubyte": ubyte(255), "byte": byte(-128), "ushort": ushort(65_535), "short": short(-32_768),
        "uint": uint(4_294_967_295), "int": int32(-2_147_483_648), "ulong": ulong(2**64 - 1), "long": -(2**63),
        "float": float32(1.5), "double": 2.25, "char": char("ß"), "timestamp": timestamp(1_800_000_000_123),
        "uuid": uuid.UUID(int=7), "binary": b"\x00\xff", "string": "żółw", "symbol": symbol("sign"), "null": None,
    }
    sent = Message(
        id=ulong(7), user_id=b"ada", subject="all", reply_to="here", correlation_id=uuid.UUID(int=9), content_type="text/x",
        content_encoding="none", group_sequence=3, durable=True, priority=9, properties=values,
    )
    sent.body = {"list": [1, [2, []], {}], "described": Described(symbol("of:its-own"), "value"), **values}
    client.sent(client.sender(queue), sent)
    receiver = client.receiver(queue)
    receiver.flow(1)
    [(_, got)] = client.received(receiver, 1)
    check(got.body, sent.body, "the body")
    check(dict(got.properties), values, "the properties")
    # Proton returns binary values as memory views.
    kinds = {name: type(value) for name, value in {**values, "binary": memoryview(b"")}.items()}
    check({name: type(value) for name, value in got.properties.items()}, kinds, "types")
    for field in ("id", "user_id", "subject", "reply_to", "correlation_id", "content_type", "content_encoding", "group_sequence"):
        check(getattr(got, field), getattr(sent, field), field)


# Credit


@scenario("AMQP-50")
def no_more_arrives_than_there_is_credit_for(w):
    queue, client = w.queue(), w.client()
    client.sent(client.sender(queue), *numbers(10))
    receiver = client.receiver(queue)
    client.passes(QUIET)
    check(receiver.queued, 0, "deliveries without credit")
    for count, expected in [(1, numbers(10)[:1]), (3, numbers(10)[1:4]), (2, numbers(10)[4:6])]:
        receiver.flow(count)
        check(bodies(client.received(receiver, count)), expected)
        client.passes(0.1)
        check((receiver.queued, receiver.credit), (0, 0), "more than was asked for, and what is left")


@scenario("AMQP-50", "AMQP-58")
def credit_waits_for_messages(w):
    queue, client = w.queue(), w.client()
    receiver = client.receiver(queue)
    receiver.flow(5)
    client.turn()
    link = client.sender(queue)
    for number in numbers(3):
        client.sent(link, number)
        check(bodies(client.received(receiver, 1)), [number])
    check(receiver.credit, 2, "credit that is left")


@scenario("AMQP-51")
def a_drain_delivers_available_messages_and_ends_the_credit(w):
    queue, client = w.queue(), w.client()
    client.sent(client.sender(queue), *numbers(3))
    receiver = client.receiver(queue)
    receiver.drain(10)
    client.until(lambda: not receiver.draining(), "the drain has ended")
    check(bodies(client.received(receiver, 3)), numbers(3))
    check(receiver.credit, 0, "credit")
    client.sent(client.sender(queue, name="again"), b"late")
    client.passes(QUIET)
    check(receiver.queued, 0, "deliveries behind the drain")
    receiver.drain_mode = False
    receiver.flow(1)
    check(bodies(client.received(receiver, 1)), [b"late"])


@scenario("AMQP-51")
def an_empty_queue_is_drained_at_once_again_and_again(w):
    queue, client = w.queue(), w.client()
    receiver = client.receiver(queue)
    for _ in range(20):
        receiver.drain(100)
        began = time.monotonic()
        client.until(lambda: not receiver.draining(), "the drain has ended")
        that(time.monotonic() - began < 5, "it took long")
    check(receiver.credit, 0, "credit")


@scenario("AMQP-51")
def credit_that_stands_is_drained(w):
    queue, client = w.queue(), w.client()
    receiver = client.receiver(queue)
    receiver.flow(50)
    client.passes(0.2)
    receiver.drain(0)
    client.until(lambda: not receiver.draining(), "the drain has ended")
    check(receiver.credit, 0, "credit")
    client.sent(client.sender(queue), b"late")
    client.passes(QUIET)
    check(receiver.queued, 0, "deliveries")


@scenario("AMQP-59")
def receivers_with_credit_take_turns(w):
    queue, client = w.queue(), w.client()
    receivers = [client.receiver(queue, name=f"receiver-{number}") for number in range(3)]
    for receiver in receivers:
        receiver.flow(1)
        client.passes(0.1)
    link = client.sender(queue)
    client.sent(link, *numbers(3))
    for receiver, number in zip(receivers, numbers(3)):
        check(bodies(client.received(receiver, 1)), [number])


# Windows


@scenario("AMQP-30", "AMQP-09")
def a_window_of_one_frame_lets_a_large_message_through(w):
    queue, client = w.queue(), w.client(frame_bytes=512, window_bytes=512)
    large = bytes(range(256)) * 400
    client.sent(client.sender(queue), large, b"small")
    receiver = client.receiver(queue)
    receiver.flow(2)
    first, second = client.received(receiver, 2)
    that((body(first[1]), body(second[1])) == (large, b"small"), "bodies differ")


@scenario("AMQP-30")
def a_closed_window_blocks_only_its_session(w):
    queue, other, client = w.queue(), w.queue(), w.client(frame_bytes=512, window_bytes=512)
    client.sent(client.sender(queue), b"x" * 20_000)
    full = client.receiver(queue)
    full.flow(1)
    # The message is not read, so the window stays closed.
    client.passes(QUIET)
    that(full.current.partial, "it came whole through a window of one frame")
    session = client.new_session()
    client.sent(client.sender(other, session=session), b"beside")
    receiver = client.receiver(other, session=session)
    receiver.flow(1)
    [(delivery, message)] = client.received(receiver, 1)
    check((body(message), client.settled(delivery, Delivery.ACCEPTED)), (b"beside", Delivery.ACCEPTED))
    # As it is read piece by piece, the rest follows.
    read = b""
    while full.current.partial or full.current.pending:
        read += full.recv(full.current.pending) or b""
        client.turn()
    that(len(read) > 20_000, f"{len(read)} bytes")


# Settling


@scenario("AMQP-60", "AMQP-64", "SET-01")
def outcomes_are_answered_in_kind(w):
    queue, client = w.queue(), w.client()
    client.sent(client.sender(queue), b"one")
    receiver = client.receiver(queue)

    def next_one(state, arrange=lambda local: None):
        receiver.flow(1)
        [(delivery, message)] = client.received(receiver, 1)
        arrange(delivery.local)
        check(client.settled(delivery, state), state, "the answer")
        return message

    def failed(local):
        local.failed = True

    check(next_one(Delivery.RELEASED).delivery_count, 0)
    check(next_one(Delivery.MODIFIED, failed).delivery_count, 0, "the count after a release")
    check(next_one(Delivery.MODIFIED, failed).delivery_count, 1, "the count after an abandon")
    check(next_one(Delivery.ACCEPTED).delivery_count, 2, "the count after two")
    check(w.count(queue), 0)


@scenario("AMQP-61", "AMQP-57")
def a_rejected_message_is_a_dead_letter_with_its_reason(w):
    queue, client = w.queue(), w.client()
    client.sent(client.sender(queue), b"bad", b"worse")
    receiver = client.receiver(queue)
    receiver.flow(2)
    (first, _), (second, _) = client.received(receiver, 2)
    info = {symbol("DeadLetterReason"): "torn", symbol("DeadLetterErrorDescription"): "in two"}
    first.local.condition = Condition("com.microsoft:dead-letter", "torn", info)
    check(client.settled(first, Delivery.REJECTED), Delivery.REJECTED)
    check(client.settled(second, Delivery.REJECTED), Delivery.REJECTED)
    that(not first.remote.condition, f"success has the error {first.remote.condition}")
    dead = client.receiver(f"{queue}/$DeadLetterQueue")
    dead.flow(2)
    (_, torn), (_, plain) = client.received(dead, 2)
    check(dict(torn.properties), {"DeadLetterReason": "torn", "DeadLetterErrorDescription": "in two"})
    check(body(plain), b"worse")


@scenario("AMQP-60", "SET-09")
def one_disposition_settles_a_range(w):
    queue, client = w.queue(), w.client()
    client.sent(client.sender(queue), *numbers(100))
    receiver = client.receiver(queue)
    receiver.flow(100)
    deliveries = [delivery for delivery, _ in client.received(receiver, 100)]
    frames = client.transport.frames_output
    for delivery in deliveries:
        delivery.update(Delivery.ACCEPTED)
    client.until(lambda: all(delivery.settled for delivery in deliveries), "all are answered")
    that(client.transport.frames_output - frames < 20, "the engine did not put them together")
    check({delivery.remote_state for delivery in deliveries}, {Delivery.ACCEPTED})
    check(w.count(queue), 0)


@scenario("AMQP-60")
def a_settled_disposition_is_not_answered(w):
    queue, client = w.queue(), w.client()
    client.sent(client.sender(queue), b"one", b"other")
    receiver = client.receiver(queue, settles=FIRST)
    check(receiver.remote_rcv_settle_mode, FIRST, "the mode")
    receiver.flow(2)
    for delivery, _ in client.received(receiver, 2):
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
    w.until(lambda: w.count(queue) == 0, client)


@scenario("AMQP-55", "AMQP-35")
def a_settled_link_receives_for_good(w):
    queue, client = w.queue(), w.client()
    client.sent(client.sender(queue), *numbers(2))
    receiver = client.receiver(queue, mode=SETTLED, settles=FIRST)
    check(receiver.remote_snd_settle_mode, SETTLED, "the mode")
    receiver.flow(1)
    [(delivery, message)] = client.received(receiver, 1)
    check((body(message), delivery.settled), (b"0", True))
    check(w.count(queue), 1)


@scenario("AMQP-65")
def forgetting_a_delivery_leaves_its_lock(w):
    queue, client = w.queue(lockDuration="PT2S"), w.client()
    client.sent(client.sender(queue), b"forgotten")
    receiver = client.receiver(queue)
    receiver.flow(1)
    [(delivery, _)] = client.received(receiver, 1)
    delivery.update(Delivery.RECEIVED)
    client.passes(0.1)
    delivery.settle()
    receiver.flow(1)
    began = time.monotonic()
    [(_, message)] = client.received(receiver, 1)
    that(time.monotonic() - began > 1, "the lock did not run on")
    check(message.delivery_count, 1)


@scenario("AMQP-39", "SET-21")
def the_locks_of_a_dropped_connection_last_until_they_expire(w):
    queue, first, second = w.queue(lockDuration="PT2S"), w.client(), w.client()
    first.sent(first.sender(queue), *numbers(3))
    receiver = first.receiver(queue)
    receiver.flow(3)
    first.received(receiver, 3)
    began = time.monotonic()
    first.drop()
    receiver = second.receiver(queue)
    receiver.flow(3)
    received = second.received(receiver, 3)
    that(time.monotonic() - began > 1, "the locks ended with their connection")
    check(bodies(received), numbers(3))
    check({message.delivery_count for _, message in received}, {1}, "the counts")


@scenario("AMQP-39")
def an_outcome_after_a_detach_is_not_sent_and_the_lock_stays(w):
    queue, client = w.queue(), w.client()
    client.sent(client.sender(queue), b"one")
    receiver = client.receiver(queue)
    receiver.flow(1)
    [(delivery, _)] = client.received(receiver, 1)
    receiver.close()
    client.until(lambda: receiver.state & Endpoint.REMOTE_CLOSED, "the link is closed")
    check(w.count(queue), 1)
    delivery.update(Delivery.ACCEPTED)
    delivery.settle()
    client.turn()
    # Proton settles nothing when a link is closed; the message stays locked.
    other = client.receiver(queue, name="other")
    other.flow(1)
    client.passes(QUIET)
    check(other.queued, 0, "deliveries of what is locked")


# Links, sessions, connections


@scenario("AMQP-36", "AMQP-90")
def links_are_refused_with_the_reason_and_the_connection_continues(w):
    queue, client = w.queue(), w.client()

    def link(kind, address, arrange=lambda it: None):
        it = getattr(client.session, kind)(f"{kind}-{address}-{time.monotonic_ns()}")
        it.source.address = address if kind == "receiver" else "proton"
        it.target.address = "proton" if kind == "receiver" else address
        arrange(it)
        return it

    def dynamic(it):
        it.source.address, it.source.dynamic = None, True

    def selector(it):
        filter_value = Described(symbol("apache.org:selector-filter:string"), "colour = 'red'")
        it.source.filter.put_dict({symbol("jms-selector"): filter_value})

    def session(it):
        it.source.filter.put_dict({symbol("com.microsoft:session-filter"): "one"})

    for kind, address, arrange, condition in [
        ("sender", "nowhere", None, "amqp:not-found"),
        ("receiver", "nowhere", None, "amqp:not-found"),
        ("sender", f"{queue}/$DeadLetterQueue", None, "amqp:not-allowed"),
        ("receiver", queue, dynamic, "amqp:not-implemented"),
        ("receiver", queue, selector, "amqp:not-implemented"),
        ("receiver", queue, session, "amqp:not-allowed"),
    ]:
        refused = link(kind, address, arrange or (lambda it: None))
        why = client.refused(refused)
        check(why.name, condition, f"{kind} at {address}")
        that(why.description, "refused without a word")
        end = refused.remote_source if kind == "receiver" else refused.remote_target
        check(end.address, None, "the end of what is refused")
        refused.close()
    client.sent(client.sender(queue), b"still here")


@scenario("AMQP-101", "AMQP-36")
def a_link_to_nowhere_in_particular_is_refused(w):
    client = w.client()
    link = client.session.sender("anonymous")
    link.source.address = "proton"
    why = client.refused(link)
    that(why.name in ("amqp:not-implemented", "amqp:not-found", "amqp:not-allowed"), why)
    that(symbol("ANONYMOUS-RELAY") not in (client.connection.remote_offered_capabilities or []), "it is offered")


@scenario("AMQP-30")
def one_connection_has_many_sessions_and_links(w):
    queue, client = w.queue(), w.client()
    sessions = [client.new_session() for _ in range(50)]
    links = []
    for session in sessions:
        for number in range(5):
            link = session.sender(f"link-{number}")
            link.source.address, link.target.address = "proton", queue
            link.open()
            links.append(link)
    client.until(lambda: all(link.credit > 0 for link in links), "all have credit")
    for link in links:
        client.send(link, b"one")
    w.until(lambda: w.count(queue) == len(links), client)
    for session in sessions[:25]:
        session.close()
    client.until(lambda: all(session.state & Endpoint.REMOTE_CLOSED for session in sessions[:25]), "they end")
    client.sent(links[-1], b"one more")


@scenario("AMQP-36", "AMQP-40")
def a_link_above_the_bound_of_a_connection_is_refused(w):
    queue, client = w.queue(), w.client()
    for number in range(LINKS_MAX):
        link = client.sender(queue, name=f"link-{number}", credit=False)
    one_more = client.session.sender("one more")
    one_more.source.address, one_more.target.address = "proton", queue
    check(client.refused(one_more).name, "amqp:resource-limit-exceeded")
    one_more.close()
    link.close()
    client.until(lambda: link.state & Endpoint.REMOTE_CLOSED, "one is closed")
    client.sent(client.sender(queue, name="in its place"), b"one")


@scenario("AMQP-39", "AMQP-30")
def a_link_is_closed_and_made_anew_under_its_name(w):
    queue, client = w.queue(), w.client()
    for number in numbers(30):
        link = client.sender(queue, name="the same")
        client.sent(link, number)
        link.close()
        client.until(lambda: link.state & Endpoint.REMOTE_CLOSED, "it is closed")
        link.free()
    check(w.count(queue), 30)


@scenario("AMQP-36", "AMQP-39")
def a_detach_that_does_not_close_is_answered_by_one_that_does(w):
    queue, client = w.queue(), w.client()
    link = client.sender(queue)
    link.detach()
    client.until(lambda: link.state & Endpoint.REMOTE_CLOSED, "it is closed")
    that(not link.remote_condition, f"{link.remote_condition}")


@scenario("AMQP-79", "AMQP-91")
def links_end_when_their_queue_is_deleted(w):
    queue, client = w.queue(), w.client()
    sender, receiver = client.sender(queue), client.receiver(queue)
    receiver.flow(10)
    client.turn()
    w.ask("DELETE", f"queues/{queue}")
    for link in (sender, receiver):
        client.until(lambda link=link: link.state & Endpoint.REMOTE_CLOSED, "it is closed")
        check(link.remote_condition.name, "amqp:link:detach-forced")


@scenario("AMQP-07")
def a_close_is_answered_with_everything_still_open(w):
    queue, client = w.queue(), w.client()
    client.sent(client.sender(queue), *numbers(5))
    receiver = client.receiver(queue)
    receiver.flow(5)
    client.received(receiver, 5)
    client.close()
    that(not client.connection.remote_condition, f"{client.connection.remote_condition}")


@scenario("AMQP-06")
def an_idle_connection_is_kept_by_empty_frames(w):
    queue, client = w.queue(), w.client(idle=1.0)
    link = client.sender(queue)
    that(client.transport.remote_idle_timeout > 0, "the broker announces none")
    # The engine closes when its peer is silent for the whole idle time.
    client.passes(3.5)
    client.sent(link, b"still here")


# Access


@scenario("AMQP-08", "SEC-12")
def a_policy_gives_its_rights_by_plain(w):
    queue, setup = w.queue(), w.client()
    setup.sent(setup.sender(queue), b"one")
    key = w.policy(queue, "listener", "Listen")
    client = w.client(user="listener", password=key)
    receiver = client.receiver(queue)
    receiver.flow(1)
    check(bodies(client.received(receiver, 1)), [b"one"])
    link = client.session.sender("not granted")
    link.source.address, link.target.address = "proton", queue
    check(client.refused(link).name, "amqp:unauthorized-access")


@scenario("AMQP-08")
def a_wrong_password_is_refused_by_sasl(w):
    client = w.client(user=ROOT, password="wrong")
    try:
        client.until(lambda: client.connection.state & Endpoint.REMOTE_ACTIVE, "it opens")
    except AssertionError:
        check(client.transport.condition.name, "amqp:unauthorized-access")
        return
    raise AssertionError("it was let in")


# Transactions


def coordinator(client):
    link = client.session.sender("coordinator")
    link.source.address = "proton"
    link.target.type = Terminus.COORDINATOR
    link.target.capabilities.put_object(symbol("amqp:local-transactions"))
    client.open(link)
    client.until(lambda: link.credit > 0, "credit")
    return link


def declared(client, link):
    """The id of a new transaction."""
    delivery = client.send(link, Message(body=Described(ulong(0x31), [None])))
    client.until(lambda: delivery.settled, "it is declared")
    check(int(delivery.remote_state), 0x33, "the state")
    [transaction] = delivery.remote.data
    return bytes(transaction)


def discharged(client, link, transaction, fail):
    delivery = client.send(link, Message(body=Described(ulong(0x32), [transaction, fail])))
    client.until(lambda: delivery.settled, "it is discharged")
    return delivery


@scenario("AMQP-95", "AMQP-97", "TXN-04")
def a_transaction_sends_all_or_nothing(w):
    queue, client = w.queue(), w.client()
    control, link = coordinator(client), client.sender(queue)
    for fail, expected in [(True, 0), (False, 3)]:
        transaction = declared(client, control)
        for number in numbers(3):
            delivery = link.delivery(f"{fail}-{number}")
            delivery.local.data = [transaction]
            delivery.update(0x34)
            link.stream(Message(body=number, inferred=True).encode())
            link.advance()
        client.passes(0.2)
        check(w.count(queue), 0, "messages before the end")
        check(discharged(client, control, transaction, fail).remote_state, Delivery.ACCEPTED)
        check(w.count(queue), expected)


@scenario("AMQP-66", "AMQP-95")
def an_unknown_transaction_is_refused(w):
    client = w.client()
    control = coordinator(client)
    delivery = discharged(client, control, b"of nobody", False)
    check(delivery.remote_state, Delivery.REJECTED)
    check(delivery.remote.condition.name, "amqp:transaction:unknown-id")


# Bytes


def greeted(w, data):
    """The broker's answer to these bytes until it closes."""
    host, _, port = w.broker.amqp.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(data)
        raw.shutdown(socket.SHUT_WR)
        said = b""
        while data := raw.recv(65536):
            said += data
    return said


def frame(performative, channel=0):
    return struct.pack(">IBBH", 8 + len(performative), 2, 0, channel) + performative


AMQP = b"AMQP\x00\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"
OPEN = frame(b"\x00\x53\x10\xc0\x04\x01\xa1\x01p")
BEGIN = frame(b"\x00\x53\x11\xc0\x0a\x04\x40\x43\x70\x00\x00\x10\x00\x52\xff")


@scenario("AMQP-04")
def an_unknown_header_is_answered_by_a_known_one(w):
    for header in (b"AMQP\x00\x02\x00\x00", b"GET / HT", b"AMQP\x07\x01\x00\x00"):
        said = greeted(w, header)
        that(said in (AMQP, SASL) or header.startswith(b"GET"), f"{header} is answered with {said}")


@scenario("AMQP-04")
def frames_in_one_write_are_processed_in_order(w):
    said = greeted(w, AMQP + OPEN + BEGIN + frame(b"\x00\x53\x17\x45") + frame(b"\x00\x53\x18\x45"))
    that(said.startswith(AMQP), said)
    # The codes of open, begin, end and close, after the header of each frame.
    codes, rest = [], said[8:]
    while rest:
        size = struct.unpack(">I", rest[:4])[0]
        codes.append(rest[10:11] if size > 8 else b"")
        rest = rest[size:]
    check([code for code in codes if code], [b"\x10", b"\x11", b"\x17", b"\x18"])


@scenario("AMQP-14", "AMQP-07")
def frames_that_make_no_sense_end_one_connection_with_a_reason(w):
    beside, queue = w.client(), w.queue()
    link = beside.sender(queue)
    transfer = frame(b"\x00\x53\x14\xc0\x04\x03\x43\x43\xa0\x00")
    all_wrong = (
        b"\xff\xff\xff\xff\x02\x00\x00\x00",
        b"\x00\x00\x00\x04\x02\x00\x00\x00",
        b"\x00\x00\x00\x08\x01\x00\x00\x00",
        b"\x00\x00\x00\x08\x02\x09\x00\x00",
        frame(b"\x00\x53\x99\x45"),
        frame(b"\xff" * 40),
        frame(b"\x00\x53\x12\xd0\x7f\xff\xff\xff\x00\x00\x00\x01"),
        transfer,
        OPEN,
    )
    with ThreadPoolExecutor(len(all_wrong)) as threads:
        answers = list(threads.map(lambda wrong: greeted(w, AMQP + OPEN + BEGIN + wrong), all_wrong))
    for wrong, said in zip(all_wrong, answers):
        that(b"amqp:" in said, f"{wrong[:16]} is answered with {said}")
    beside.sent(link, b"undisturbed")
