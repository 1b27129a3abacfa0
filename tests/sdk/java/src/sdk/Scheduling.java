package sdk;

import static sdk.Check.equal;
import static sdk.Check.that;
import static sdk.World.bodies;
import static sdk.World.one;
import static sdk.World.receive;

import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.temporal.ChronoUnit;
import java.util.HashSet;
import java.util.List;

/** Scheduling and cancelling. */
final class Scheduling {
    private Scheduling() {}

    private static OffsetDateTime soon(long milliseconds) {
        return OffsetDateTime.now().plus(Duration.ofMillis(milliseconds)).truncatedTo(ChronoUnit.MILLIS);
    }

    static void scenarios(List<Scenario> all) {
        // SCH-01, AMQP-82, AMQP-102
        all.add(new Scenario("a scheduled message arrives at its time", w -> {
            String queue = w.queue();
            var at = soon(3_000);
            long number = w.sender(queue).scheduleMessage(new ServiceBusMessage("x"), at);
            that(number > 0, "its number is " + number);
            equal(w.counted(queue, "scheduledMessageCount"), 1, "scheduled");
            var message = one(w.receiver(queue));
            that(!message.getEnqueuedTime().isBefore(at), "it came at " + message.getEnqueuedTime());
        }));

        // SCH-01
        all.add(new Scenario("several messages are scheduled at once", w -> {
            String queue = w.queue();
            var numbers = new HashSet<Long>();
            w.sender(queue).scheduleMessages(Sending.numbered(3), soon(800)).forEach(numbers::add);
            equal(numbers.size(), 3, "numbers");
            equal(bodies(receive(w.receiver(queue), 3)), Sending.numbers(3), "what comes");
        }));

        // SCH-04, SCH-05, AMQP-82
        all.add(new Scenario("a scheduled message is cancelled", w -> {
            String queue = w.queue();
            var sender = w.sender(queue);
            long one = sender.scheduleMessage(new ServiceBusMessage("a"), soon(3_600_000));
            long two = sender.scheduleMessage(new ServiceBusMessage("b"), soon(3_600_000));
            sender.cancelScheduledMessage(one);
            equal(w.counted(queue, "scheduledMessageCount"), 1, "scheduled");
            sender.cancelScheduledMessages(List.of(two));
            // This SDK reports an absent message as cancelled.
            sender.cancelScheduledMessage(two);
            equal(w.counted(queue, "totalMessageCount"), 0, "messages");
        }));

        // SCH-02, AMQP-44
        all.add(new Scenario("a message may name its time itself", w -> {
            String queue = w.queue();
            var at = soon(1_000);
            w.sender(queue).sendMessage(new ServiceBusMessage("x").setScheduledEnqueueTime(at));
            var message = one(w.receiver(queue));
            that(!message.getEnqueuedTime().isBefore(at), "it came at " + message.getEnqueuedTime());
            that(message.getScheduledEnqueueTime().isEqual(at), "it was to come at " + message.getScheduledEnqueueTime());
        }));

        // SCH-10
        all.add(new Scenario("a topic schedules for its subscriptions", w -> {
            String topic = w.topic("s");
            w.sender(topic).scheduleMessage(new ServiceBusMessage("x"), soon(800));
            equal(one(w.subscription(topic, "s")).getBody().toString(), "x", "body");
        }));
    }
}
