package sdk;

import static sdk.Check.equal;
import static sdk.Check.refused;
import static sdk.Check.that;
import static sdk.World.bodies;
import static sdk.World.nothing;
import static sdk.World.one;
import static sdk.World.receive;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Receiving: modes, prefetch, waiting, peeking, sub-queues, competing receivers. */
final class Receiving {
    private Receiving() {}

    static void scenarios(List<Scenario> all) {
        // AMQP-55, RCV-02
        all.add(new Scenario("receive and delete removes messages", w -> {
            String queue = w.queue();
            w.send(queue, "one", "two");
            try (var receiver = w.receiver(queue, it -> it.receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE))) {
                var message = one(receiver);
                equal(message.getBody().toString(), "one", "body");
                refused(UnsupportedOperationException.class, () -> receiver.complete(message));
            }
            equal(w.drain(queue), List.of("two"), "what is there");
        }));

        // AMQP-50
        all.add(new Scenario("a receive waits no longer than its timeout", w -> {
            var receiver = w.receiver(w.queue());
            long began = System.nanoTime();
            equal(bodies(receiver.receiveMessages(5, Duration.ofSeconds(1))), List.of(), "what was received");
            double took = (System.nanoTime() - began) / 1e9;
            that(took >= 0.9 && took < 10, "it took " + took + " s");
        }));

        // AMQP-48, AMQP-64
        all.add(new Scenario("messages after the end of a receive are released uncounted", w -> {
            String queue = w.queue();
            nothing(w.receiver(queue));
            // The credit of that call remains; the SDK releases messages that arrive for it.
            w.send(queue, "x");
            var other = w.receiver(queue);
            var message = one(other);
            equal(message.getDeliveryCount(), 0L, "deliveries");
            other.complete(message);
        }));

        // AMQP-58
        all.add(new Scenario("messages arrive in the order of their sends", w -> {
            String queue = w.queue();
            w.sender(queue).sendMessages(Sending.numbered(100));
            var receiver = w.receiver(queue);
            var messages = receive(receiver, 100);
            equal(bodies(messages), Sending.numbers(100), "bodies");
            messages.forEach(receiver::complete);
            equal(w.counted(queue, "activeMessageCount"), 0, "messages left");
        }));

        // AMQP-50, AMQP-69
        all.add(new Scenario("a receiver fetches ahead", w -> {
            String queue = w.queue("{\"lockDuration\": \"PT3S\"}");
            w.sender(queue).sendMessages(Sending.numbered(10));
            var receiver = w.receiver(queue, it -> it.prefetchCount(10));
            equal(one(receiver).getBody().toString(), "0", "body");
            // All ten are locked. Nine wait in the SDK, and stay locked for a while after it
            // closes.
            var other = w.receiver(queue);
            nothing(other);
            receiver.close();
            equal(receive(other, 10).stream().map(ServiceBusReceivedMessage::getDeliveryCount).distinct().toList(), List.of(1L), "deliveries");
        }));

        // AMQP-59
        all.add(new Scenario("two receivers share a queue", w -> {
            String queue = w.queue();
            var waiting = new ArrayList<CompletableFuture<String>>();
            for (int n = 0; n < 2; n += 1) {
                var receiver = w.receiver(queue);
                var found = new CompletableFuture<String>();
                waiting.add(found);
                Thread thread = new Thread(() -> found.complete(one(receiver).getBody().toString()));
                thread.setDaemon(true);
                thread.start();
            }
            Thread.sleep(500);
            w.send(queue, "a", "b");
            var both = new ArrayList<String>();
            for (var found : waiting) both.add(found.get());
            equal(both.stream().sorted().toList(), List.of("a", "b"), "what was received");
        }));

        // AMQP-56
        all.add(new Scenario("a delivery has the properties of the broker", w -> {
            String queue = w.queue();
            w.send(queue, "x");
            var message = one(w.receiver(queue));
            that(message.getSequenceNumber() > 0, "it has no number");
            equal(message.getEnqueuedSequenceNumber(), 0L, "number at first");
            equal(message.getDeliveryCount(), 0L, "deliveries");
            equal(message.getState(), ServiceBusMessageState.ACTIVE, "state");
            that(Duration.between(message.getEnqueuedTime(), OffsetDateTime.now()).abs().toSeconds() < 30, "enqueued at");
            that(message.getLockedUntil().isAfter(message.getEnqueuedTime()), "locked until");
            that(message.getLockToken().matches("[0-9a-f]{8}-.*[1-9a-f].*"), message.getLockToken());
        }));

        // AMQP-33, DLQ-03, AMQP-57
        all.add(new Scenario("the dead-letter queue is received from", w -> {
            String queue = w.queue();
            w.send(queue, "x");
            var receiver = w.receiver(queue);
            receiver.deadLetter(one(receiver), new DeadLetterOptions().setDeadLetterReason("why").setDeadLetterErrorDescription("because"));
            var dead = w.deadLetters(queue);
            var message = one(dead);
            equal(message.getDeadLetterReason(), "why", "reason");
            equal(message.getDeadLetterErrorDescription(), "because", "description");
            dead.complete(message);
            nothing(dead);
        }));

        // AMQP-33, FWD-15
        all.add(new Scenario("the transfer dead-letter queue is received from", w -> {
            String target = w.queue();
            String queue = w.queue("{\"forwardTo\": \"" + target + "\"}");
            w.ask("PATCH", "queues/" + target, "{\"status\": \"Disabled\"}");
            w.send(queue, "x");
            var receiver = w.receiver(queue, it -> it.subQueue(SubQueue.TRANSFER_DEAD_LETTER_QUEUE));
            var message = one(receiver);
            equal(message.getDeadLetterReason(), "MessagingEntityDisabled", "reason");
            receiver.complete(message);
        }));

        // PEK-01, PEK-04, AMQP-83
        all.add(new Scenario("a peek removes nothing", w -> {
            String queue = w.queue();
            w.send(queue, "a", "b", "c");
            var receiver = w.receiver(queue);
            var seen = new ArrayList<ServiceBusReceivedMessage>();
            receiver.peekMessages(10).forEach(seen::add);
            equal(bodies(seen), List.of("a", "b", "c"), "what is seen");
            equal(bodies(receiver.peekMessages(10)), List.of(), "what is seen behind it");
            equal(bodies(receiver.peekMessages(10, seen.get(1).getSequenceNumber())), List.of("b", "c"), "what is seen from the second on");
            for (var message : receive(receiver, 3)) equal(message.getDeliveryCount(), 0L, "deliveries");
        }));

        // AMQP-56, PEK-02
        all.add(new Scenario("a peek sees scheduled, deferred and locked messages", w -> {
            String queue = w.queue();
            w.send(queue, "deferred", "locked");
            var receiver = w.receiver(queue);
            receiver.defer(one(receiver));
            one(receiver);
            w.sender(queue).scheduleMessage(new ServiceBusMessage("scheduled"), OffsetDateTime.now().plusHours(1));
            var states = new HashMap<String, ServiceBusMessageState>();
            w.receiver(queue).peekMessages(10).forEach(message -> states.put(message.getBody().toString(), message.getState()));
            equal(states, Map.of(
                "deferred", ServiceBusMessageState.DEFERRED,
                "locked", ServiceBusMessageState.ACTIVE,
                "scheduled", ServiceBusMessageState.SCHEDULED), "what is seen");
        }));

        // AMQP-39, SET-21
        all.add(new Scenario("locks outlive the receiver that closes in order", w -> {
            String queue = w.queue("{\"lockDuration\": \"PT3S\"}");
            w.send(queue, "x");
            try (var receiver = w.receiver(queue)) {
                one(receiver);
            }
            var other = w.receiver(queue);
            nothing(other);
            var message = one(other);
            equal(message.getDeliveryCount(), 1L, "deliveries");
            other.complete(message);
        }));

        // EXP-20, DLQ-12
        all.add(new Scenario("an expired message is dead-lettered if configured", w -> {
            String queue = w.queue("{\"deadLetteringOnMessageExpiration\": true}");
            w.sender(queue).sendMessage(new ServiceBusMessage("x").setTimeToLive(Duration.ofSeconds(1)));
            Thread.sleep(1_100);
            // A receive detects the expiry (EXP-35).
            nothing(w.receiver(queue));
            equal(one(w.deadLetters(queue)).getDeadLetterReason(), "TTLExpiredException", "reason");
        }));
    }
}
