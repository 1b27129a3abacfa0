package sdk;

import static sdk.Check.condition;
import static sdk.Check.equal;
import static sdk.Check.refused;
import static sdk.Check.that;
import static sdk.World.bodies;
import static sdk.World.nothing;
import static sdk.World.one;
import static sdk.World.receive;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Sessions: by name and next available, state, locks, order. */
final class Sessions {
    private Sessions() {}

    /** Clients that try once, for three seconds. */
    private static ServiceBusClientBuilder hasty(World w) {
        var retry = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(3));
        return new ServiceBusClientBuilder().connectionString(w.broker.connectionString()).retryOptions(retry);
    }

    static void scenarios(List<Scenario> all) {
        // AMQP-70, AMQP-71, AMQP-75
        all.add(new Scenario("a session is received by its name", w -> {
            String queue = w.sessions();
            w.sendTo(queue, "a", "a1", "a2");
            w.sendTo(queue, "b", "b1");
            var receiver = w.accept(queue, "a");
            equal(receiver.getSessionId(), "a", "session");
            var messages = receive(receiver, 2);
            equal(bodies(messages), List.of("a1", "a2"), "bodies");
            for (var message : messages) {
                equal(message.getSessionId(), "a", "session");
                receiver.complete(message);
            }
            nothing(receiver);
        }));

        // AMQP-73
        all.add(new Scenario("the next session that has messages is given", w -> {
            String queue = w.sessions();
            w.sendTo(queue, "b", "b1");
            var receiver = w.keep(w.keep(w.sessionReceivers(queue).buildClient()).acceptNextSession());
            equal(receiver.getSessionId(), "b", "session");
            receiver.complete(one(receiver));
        }));

        // AMQP-73
        all.add(new Scenario("without a session accepting times out", w -> {
            String queue = w.sessions();
            var receivers = w.keep(hasty(w).sessionReceiver().queueName(queue).disableAutoComplete().buildClient());
            refused(RuntimeException.class, receivers::acceptNextSession);
            // No earlier receiver waits any more that could get the session.
            w.sendTo(queue, "late", "x");
            equal(w.accept(queue, "late").getSessionId(), "late", "session");
        }));

        // AMQP-73
        all.add(new Scenario("a session is given to a waiting receiver", w -> {
            String queue = w.sessions();
            var receivers = w.keep(w.sessionReceivers(queue).buildClient());
            var accepting = CompletableFuture.supplyAsync(() -> w.keep(receivers.acceptNextSession()));
            Thread.sleep(500);
            w.sendTo(queue, "late", "x");
            var receiver = accepting.get();
            equal(receiver.getSessionId(), "late", "session");
            equal(one(receiver).getBody().toString(), "x", "body");
        }));

        // AMQP-72
        all.add(new Scenario("a session has one receiver", w -> {
            String queue = w.sessions();
            var receiver = w.accept(queue, "a");
            var others = w.keep(hasty(w).sessionReceiver().queueName(queue).disableAutoComplete().buildClient());
            condition(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, () -> others.acceptSession("a"));
            receiver.close();
            equal(w.accept(queue, "a").getSessionId(), "a", "session");
        }));

        // AMQP-39, SES-31
        all.add(new Scenario("unsettled messages return when the session is closed", w -> {
            String queue = w.sessions();
            w.sendTo(queue, "a", "1", "2", "3");
            try (var receiver = w.accept(queue, "a")) {
                receiver.complete(receive(receiver, 2).get(0));
            }
            var messages = receive(w.accept(queue, "a"), 2);
            equal(bodies(messages), List.of("2", "3"), "bodies");
            for (var message : messages) equal(message.getDeliveryCount(), 0L, "deliveries");
        }));

        // SES-24, AMQP-82
        all.add(new Scenario("a session has a state", w -> {
            String queue = w.sessions();
            try (var receiver = w.accept(queue, "a")) {
                that(receiver.getSessionState() == null, "it has one");
                receiver.setSessionState("half way".getBytes());
                equal(receiver.getSessionState(), "half way".getBytes(), "state");
            }
            var receiver = w.accept(queue, "a");
            equal(receiver.getSessionState(), "half way".getBytes(), "state");
            receiver.setSessionState(null);
            that(receiver.getSessionState() == null, "it has one");
        }));

        // SES-12, AMQP-82
        all.add(new Scenario("a session lock is renewed", w -> {
            String queue = w.queue("{\"requiresSession\": true, \"lockDuration\": \"PT4S\"}");
            w.sendTo(queue, "a", "x");
            var receiver = w.accept(queue, "a");
            var message = one(receiver);
            OffsetDateTime until = message.getLockedUntil();
            for (int n = 0; n < 3; n += 1) {
                Thread.sleep(2_000);
                var next = receiver.renewSessionLock();
                that(next.isAfter(until), "it ends at " + next);
                until = next;
            }
            receiver.complete(message);
            equal(w.counted(queue, "totalMessageCount"), 0, "messages left");
        }));

        // AMQP-74, SES-30
        all.add(new Scenario("an ended session lock prevents settlement", w -> {
            String queue = w.queue("{\"requiresSession\": true, \"lockDuration\": \"PT1S\"}");
            w.sendTo(queue, "a", "x");
            var receiver = w.accept(queue, "a");
            var message = one(receiver);
            Thread.sleep(2_000);
            refused(RuntimeException.class, () -> receiver.complete(message));
            var again = one(w.accept(queue, "a"));
            equal(again.getDeliveryCount(), 1L, "deliveries");
        }));

        // AMQP-70
        all.add(new Scenario("a receiver without session is refused where one is required", w -> {
            var receiver = w.receiver(w.sessions());
            var error = refused(UnsupportedOperationException.class, () -> one(receiver));
            that(error.getMessage().toLowerCase().contains("session"), error.getMessage());
        }));

        // AMQP-70
        all.add(new Scenario("a session is refused at a queue without sessions", w -> {
            String queue = w.queue();
            refused(RuntimeException.class, () -> w.accept(queue, "a"));
        }));

        // DEF-01, SES-20
        all.add(new Scenario("a message of a session is deferred", w -> {
            String queue = w.sessions();
            w.sendTo(queue, "a", "x");
            var receiver = w.accept(queue, "a");
            var message = one(receiver);
            receiver.defer(message);
            receiver.complete(receiver.receiveDeferredMessage(message.getSequenceNumber()));
            equal(w.counted(queue, "totalMessageCount"), 0, "messages left");
        }));

        // SES-20, SES-22
        all.add(new Scenario("a session keeps its order over abandons and dead letters", w -> {
            String queue = w.sessions();
            w.sendTo(queue, "a", "1", "2", "3");
            var receiver = w.accept(queue, "a");
            receiver.abandon(one(receiver));
            var first = one(receiver);
            equal(first.getBody().toString(), "1", "body");
            receiver.deadLetter(first);
            equal(bodies(receive(receiver, 2)), List.of("2", "3"), "bodies");
            equal(one(w.deadLetters(queue)).getBody().toString(), "1", "dead letter");
        }));

        // AMQP-55, SES-21, PEK-07
        all.add(new Scenario("a session is peeked, received and deleted", w -> {
            String queue = w.sessions();
            w.sendTo(queue, "a", "1", "2");
            w.sendTo(queue, "b", "3");
            var receivers = w.keep(w.sessionReceivers(queue).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
            var receiver = w.keep(receivers.acceptSession("a"));
            equal(bodies(receiver.peekMessages(10)), List.of("1", "2"), "what is seen");
            equal(bodies(receive(receiver, 2)), List.of("1", "2"), "bodies");
            equal(w.counted(queue, "totalMessageCount"), 1, "messages left");
        }));
    }
}
