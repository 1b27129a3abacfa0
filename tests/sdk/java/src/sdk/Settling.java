package sdk;

import static sdk.Check.equal;
import static sdk.Check.refused;
import static sdk.Check.that;
import static sdk.World.bodies;
import static sdk.World.nothing;
import static sdk.World.one;
import static sdk.World.receive;

import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Map;

/** Settling: all outcomes, delivery counts, locks that end and are renewed. */
final class Settling {
    private Settling() {}

    static void scenarios(List<Scenario> all) {
        // AMQP-60, AMQP-64
        all.add(new Scenario("an abandoned message returns with a higher count", w -> {
            String queue = w.queue();
            w.send(queue, "x");
            var receiver = w.receiver(queue);
            for (long count = 0; count < 4; count += 1) {
                var message = one(receiver);
                equal(message.getDeliveryCount(), count, "deliveries");
                receiver.abandon(message);
            }
        }));

        // AMQP-63
        all.add(new Scenario("an abandon may change properties", w -> {
            String queue = w.queue();
            var sent = new ServiceBusMessage("x");
            sent.getApplicationProperties().putAll(Map.of("kept", 1, "tries", 0));
            w.sender(queue).sendMessage(sent);
            var receiver = w.receiver(queue);
            receiver.abandon(one(receiver), new AbandonOptions().setPropertiesToModify(Map.of("tries", 1, "why", "tired")));
            equal(one(receiver).getApplicationProperties(), Map.of("kept", 1, "tries", 1, "why", "tired"), "properties");
        }));

        // RTY-01, RTY-12, RTY-27
        all.add(new Scenario("an abandon may delay the message", w -> {
            String queue = w.queue();
            w.send(queue, "later", "soon");
            var receiver = w.receiver(queue);
            var messages = receive(receiver, 2);
            long began = System.currentTimeMillis();
            var delays = List.<Object>of(3_600_000, "1500");
            for (int n = 0; n < 2; n += 1) {
                Map<String, Object> change = Map.of("peeklock-delay-ms", delays.get(n), "tries", 1);
                receiver.abandon(messages.get(n), new AbandonOptions().setPropertiesToModify(change));
            }
            var again = one(receiver);
            that(System.currentTimeMillis() - began >= 1_500, "it came too soon");
            equal(again.getBody().toString(), "soon", "body");
            equal(again.getDeliveryCount(), 1L, "deliveries");
            equal(again.getApplicationProperties(), Map.of("tries", 1), "properties");
            receiver.complete(again);
            var delayed = receiver.peekMessage();
            equal(delayed.getBody().toString(), "later", "body");
            equal(delayed.getState(), ServiceBusMessageState.ACTIVE, "state");
            equal(delayed.getApplicationProperties(), Map.of("tries", 1), "properties");
            Object until = delayed.getRawAmqpMessage().getMessageAnnotations().get("x-opt-peeklock-delayed-until");
            that(until instanceof Date at && at.getTime() - began >= 3_600_000, "it is delayed until " + until);
            equal(w.counted(queue, "delayedMessageCount"), 1, "delayed messages");
        }));

        // AMQP-63, AMQP-61
        all.add(new Scenario("a dead-letter may change properties", w -> {
            String queue = w.queue();
            w.send(queue, "x");
            var receiver = w.receiver(queue);
            receiver.deadLetter(one(receiver),
                new DeadLetterOptions().setDeadLetterReason("r").setPropertiesToModify(Map.of("tries", 7)));
            var dead = one(w.deadLetters(queue));
            equal(dead.getApplicationProperties().get("tries"), 7, "property");
            equal(dead.getDeadLetterReason(), "r", "reason");
        }));

        // AMQP-64, DLQ-12
        all.add(new Scenario("a message abandoned too often is dead-lettered", w -> {
            String queue = w.queue("{\"maxDeliveryCount\": 2}");
            w.send(queue, "x");
            var receiver = w.receiver(queue);
            for (int n = 0; n < 2; n += 1) receiver.abandon(one(receiver));
            nothing(receiver);
            equal(one(w.deadLetters(queue)).getDeadLetterReason(), "MaxDeliveryCountExceeded", "reason");
        }));

        // DEF-01, AMQP-84, AMQP-63
        all.add(new Scenario("a deferred message is received by its number", w -> {
            String queue = w.queue();
            w.send(queue, "x");
            var receiver = w.receiver(queue);
            var message = one(receiver);
            receiver.defer(message, new DeferOptions().setPropertiesToModify(Map.of("later", true)));
            nothing(receiver);
            var again = receiver.receiveDeferredMessage(message.getSequenceNumber());
            equal(again.getBody().toString(), "x", "body");
            equal(again.getState(), ServiceBusMessageState.DEFERRED, "state");
            equal(again.getApplicationProperties().get("later"), true, "property");
            receiver.complete(again);
            equal(w.counted(queue, "totalMessageCount"), 0, "messages left");
            refused(RuntimeException.class, () -> receiver.receiveDeferredMessage(message.getSequenceNumber()));
        }));

        // AMQP-84
        all.add(new Scenario("deferred messages are dead-lettered, deferred, abandoned and renewed", w -> {
            String queue = w.queue();
            w.send(queue, "a", "b");
            var receiver = w.receiver(queue);
            var numbers = new ArrayList<Long>();
            for (var message : receive(receiver, 2)) {
                numbers.add(message.getSequenceNumber());
                receiver.defer(message);
            }
            var both = receiver.receiveDeferredMessageBatch(numbers).stream().toList();
            receiver.defer(both.get(0));
            receiver.abandon(both.get(1));
            nothing(receiver);
            both = receiver.receiveDeferredMessageBatch(numbers).stream().toList();
            equal(bodies(both), List.of("a", "b"), "what was received");
            receiver.renewMessageLock(both.get(0));
            receiver.deadLetter(both.get(0), new DeadLetterOptions().setDeadLetterReason("r"));
            receiver.complete(both.get(1));
            equal(w.counted(queue, "deadLetterMessageCount"), 1, "dead letters");
            equal(w.counted(queue, "totalMessageCount"), 1, "messages");
        }));

        // AMQP-62, SET-14
        all.add(new Scenario("a lock that has ended settles nothing", w -> {
            String queue = w.queue("{\"lockDuration\": \"PT1S\"}");
            w.send(queue, "x");
            var receiver = w.receiver(queue);
            var message = one(receiver);
            var again = one(receiver);
            equal(again.getDeliveryCount(), 1L, "deliveries");
            refused(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> receiver.complete(message));
        }));

        // SET-18, AMQP-82
        all.add(new Scenario("a renewed lock lasts longer", w -> {
            String queue = w.queue("{\"lockDuration\": \"PT4S\"}");
            w.send(queue, "x");
            var receiver = w.receiver(queue);
            var message = one(receiver);
            var until = message.getLockedUntil();
            for (int n = 0; n < 3; n += 1) {
                Thread.sleep(2_000);
                var next = receiver.renewMessageLock(message);
                that(next.isAfter(until), "it ends at " + next);
                until = next;
            }
            receiver.complete(message);
            equal(w.counted(queue, "activeMessageCount"), 0, "messages left");
        }));

        // SET-18
        all.add(new Scenario("a client renews its lock by itself", w -> {
            String queue = w.queue("{\"lockDuration\": \"PT3S\"}");
            w.send(queue, "x");
            var receiver = w.receiver(queue, it -> it.maxAutoLockRenewDuration(Duration.ofMinutes(1)));
            var message = one(receiver);
            Thread.sleep(7_000);
            receiver.complete(message);
            equal(w.counted(queue, "totalMessageCount"), 0, "messages left");
        }));

        // AMQP-62
        all.add(new Scenario("renewing a lock that has ended is refused", w -> {
            String queue = w.queue("{\"lockDuration\": \"PT1S\"}");
            w.send(queue, "x");
            var receiver = w.receiver(queue);
            var message = one(receiver);
            Thread.sleep(1_300);
            refused(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> receiver.renewMessageLock(message));
        }));

        // AMQP-60, AMQP-68
        all.add(new Scenario("a message is settled once", w -> {
            String queue = w.queue();
            w.send(queue, "x");
            var receiver = w.receiver(queue);
            var message = one(receiver);
            receiver.complete(message);
            refused(RuntimeException.class, () -> receiver.abandon(message));
            equal(w.counted(queue, "totalMessageCount"), 0, "messages left");
        }));

        // AMQP-60
        all.add(new Scenario("a hundred deliveries are settled in any order", w -> {
            String queue = w.queue();
            w.sender(queue).sendMessages(Sending.numbered(100));
            var receiver = w.receiver(queue);
            var messages = receive(receiver, 100);
            for (int n = 99; n > 0; n -= 2) receiver.complete(messages.get(n));
            var even = new ArrayList<String>();
            for (int n = 0; n < 100; n += 2) {
                even.add(messages.get(n).getBody().toString());
                receiver.abandon(messages.get(n));
            }
            equal(bodies(receive(receiver, 50)), even, "what comes again");
        }));

        // FWD-01, FWD-26
        all.add(new Scenario("dead letters are forwarded with their source", w -> {
            String grave = w.queue();
            String queue = w.queue("{\"forwardDeadLetteredMessagesTo\": \"" + grave + "\"}");
            w.send(queue, "x");
            var receiver = w.receiver(queue);
            receiver.deadLetter(one(receiver), new DeadLetterOptions().setDeadLetterReason("r"));
            ServiceBusReceivedMessage dead = one(w.receiver(grave));
            equal(dead.getDeadLetterSource().toLowerCase(), queue.toLowerCase(), "source");
        }));
    }
}
