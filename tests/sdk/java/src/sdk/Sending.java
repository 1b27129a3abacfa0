package sdk;

import static sdk.Check.condition;
import static sdk.Check.equal;
import static sdk.Check.refused;
import static sdk.Check.that;
import static sdk.World.one;
import static sdk.World.receive;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.core.amqp.models.AmqpMessageId;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.models.CreateMessageBatchOptions;
import java.net.URI;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** Sending: bodies, properties, lists, batches, sizes. */
final class Sending {
    private Sending() {}

    static List<ServiceBusMessage> numbered(int count) {
        return IntStream.range(0, count).mapToObj(n -> new ServiceBusMessage(String.valueOf(n))).toList();
    }

    static List<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(String::valueOf).toList();
    }

    static void scenarios(List<Scenario> all) {
        // AMQP-40, AMQP-41
        all.add(new Scenario("a message arrives as sent", w -> {
            String queue = w.queue();
            w.send(queue, "two coffees");
            var receiver = w.receiver(queue);
            var message = one(receiver);
            equal(message.getBody().toString(), "two coffees", "body");
            receiver.complete(message);
            equal(w.counted(queue, "totalMessageCount"), 0, "messages left");
        }));

        // AMQP-44, AMQP-45
        all.add(new Scenario("broker properties are kept", w -> {
            String queue = w.queue();
            w.sender(queue).sendMessage(new ServiceBusMessage(new byte[] {0, 1, -1})
                .setMessageId("order-1").setCorrelationId("c-1").setSubject("tea").setTo("kitchen").setReplyTo("waiter")
                .setReplyToSessionId("table-7").setContentType("application/octet-stream").setPartitionKey("p")
                .setTimeToLive(Duration.ofMinutes(10)));
            var message = one(w.receiver(queue));
            equal(message.getBody().toBytes(), new byte[] {0, 1, -1}, "body");
            equal(message.getMessageId(), "order-1", "message id");
            equal(message.getCorrelationId(), "c-1", "correlation id");
            equal(message.getSubject(), "tea", "subject");
            equal(message.getTo(), "kitchen", "to");
            equal(message.getReplyTo(), "waiter", "reply to");
            equal(message.getReplyToSessionId(), "table-7", "reply to session");
            equal(message.getContentType(), "application/octet-stream", "content type");
            equal(message.getPartitionKey(), "p", "partition key");
            equal(message.getTimeToLive(), Duration.ofMinutes(10), "time to live");
            equal(Duration.between(message.getEnqueuedTime(), message.getExpiresAt()), Duration.ofMinutes(10), "life");
        }));

        // AMQP-45, AMQP-102
        all.add(new Scenario("application properties keep their types", w -> {
            String queue = w.queue();
            var sent = new HashMap<String, Object>();
            sent.put("text", "zwölf");
            sent.put("yes", true);
            sent.put("nothing", null);
            sent.put("byte", (byte) -8);
            sent.put("short", (short) -1600);
            sent.put("int", -320_000);
            sent.put("long", -1L << 60);
            sent.put("float", 1.5f);
            sent.put("double", 0.1);
            sent.put("char", 'ß');
            sent.put("uuid", UUID.randomUUID());
            sent.put("at", OffsetDateTime.of(2026, 5, 1, 12, 0, 0, 0, ZoneOffset.UTC));
            sent.put("span", Duration.ofSeconds(90));
            sent.put("uri", URI.create("https://example.com/a?b"));
            var message = new ServiceBusMessage("x");
            message.getApplicationProperties().putAll(sent);
            w.sender(queue).sendMessage(message);
            var found = one(w.receiver(queue)).getApplicationProperties();
            sent.forEach((name, value) -> equal(found.get(name), value, name));
            equal(found.keySet(), sent.keySet(), "names");
        }));

        // AMQP-44, AMQP-102
        all.add(new Scenario("a message without an id gets one", w -> {
            String queue = w.queue();
            w.send(queue, "x");
            var receiver = w.receiver(queue);
            var message = one(receiver);
            that(message.getMessageId() != null && !message.getMessageId().isEmpty(), "it has none");
            receiver.complete(message);
        }));

        // AMQP-45
        all.add(new Scenario("bodies of data, values and sequences", w -> {
            String queue = w.queue();
            var sender = w.sender(queue);
            sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromData(new byte[] {7})));
            sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromValue("text")));
            sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromValue(-7L)));
            sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromSequence(List.of(1L, "zwei"))));
            var bodies = receive(w.receiver(queue), 4).stream().map(one -> one.getRawAmqpMessage().getBody()).toList();
            equal(bodies.get(0).getFirstData(), new byte[] {7}, "data");
            equal(bodies.get(1).getValue(), "text", "value");
            equal(bodies.get(2).getValue(), -7L, "value");
            equal(bodies.get(3).getBodyType(), AmqpMessageBodyType.SEQUENCE, "kind");
            equal(bodies.get(3).getSequence(), List.of(1L, "zwei"), "sequence");
        }));

        // AMQP-45
        all.add(new Scenario("sections that only AMQP has are kept", w -> {
            String queue = w.queue();
            var message = new ServiceBusMessage("x");
            var raw = message.getRawAmqpMessage();
            raw.getProperties().setCorrelationId(new AmqpMessageId("c")).setContentEncoding("gzip")
                .setUserId("me".getBytes()).setGroupSequence(9L);
            raw.getHeader().setPriority((short) 7);
            w.sender(queue).sendMessage(message);
            var found = one(w.receiver(queue)).getRawAmqpMessage();
            equal(found.getProperties().getContentEncoding(), "gzip", "content encoding");
            equal(found.getProperties().getUserId(), "me".getBytes(), "user id");
            equal(found.getProperties().getGroupSequence(), 9L, "group sequence");
        }));

        // SND-09, AMQP-42
        all.add(new Scenario("a list of messages is sent as one", w -> {
            String queue = w.queue();
            w.sender(queue).sendMessages(numbered(50));
            equal(w.drain(queue), numbers(50), "bodies");
        }));

        // AMQP-42, AMQP-43
        all.add(new Scenario("a batch accepts fitting messages and is stored as a whole", w -> {
            String queue = w.queue();
            var sender = w.sender(queue);
            var batch = sender.createMessageBatch();
            while (batch.tryAddMessage(new ServiceBusMessage(new byte[10_000]))) {
                that(batch.getCount() < 110, "too many fit");
            }
            that(batch.getCount() > 90 && batch.getCount() < 106, batch.getCount() + " messages of 10,000 bytes fit");
            sender.sendMessages(batch);
            equal(w.counted(queue, "activeMessageCount"), batch.getCount(), "messages");
        }));

        // AMQP-42
        all.add(new Scenario("a batch keeps the properties of each", w -> {
            String queue = w.queue();
            var sender = w.sender(queue);
            var batch = sender.createMessageBatch(new CreateMessageBatchOptions().setMaximumSizeInBytes(20_000));
            for (int n = 0; n < 3; n += 1) {
                var message = new ServiceBusMessage("body " + n).setMessageId("m" + n);
                message.getApplicationProperties().put("n", n);
                that(batch.tryAddMessage(message), "it does not fit");
            }
            sender.sendMessages(batch);
            int n = 0;
            for (ServiceBusReceivedMessage message : receive(w.receiver(queue), 3)) {
                equal(message.getBody().toString(), "body " + n, "body");
                equal(message.getMessageId(), "m" + n, "message id");
                equal(message.getApplicationProperties().get("n"), n, "property");
                n += 1;
            }
        }));

        // AMQP-43
        all.add(new Scenario("a message over the limit is refused and the link continues", w -> {
            String queue = w.queue();
            var sender = w.sender(queue);
            refused(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED,
                () -> sender.sendMessage(new ServiceBusMessage(new byte[1 << 20])));
            sender.sendMessage(new ServiceBusMessage("small"));
            equal(w.drain(queue), List.of("small"), "what is there");
        }));

        // AMQP-31, AMQP-43
        all.add(new Scenario("a message of many frames arrives whole", w -> {
            String queue = w.queue();
            byte[] body = "0123456789abcdef!".repeat(58_000).getBytes();
            var sender = w.sender(queue);
            for (int n = 0; n < 3; n += 1) sender.sendMessage(new ServiceBusMessage(body));
            for (var message : receive(w.receiver(queue), 3)) {
                that(Arrays.equals(message.getBody().toBytes(), body), "the body differs");
            }
        }));

        // AMQP-90, AMQP-36
        all.add(new Scenario("an absent queue is named", w -> {
            var error = refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND,
                () -> w.sender("nowhere").sendMessage(new ServiceBusMessage("x")));
            that(error.getMessage().contains("nowhere"), error.getMessage());
            condition(AmqpErrorCondition.NOT_FOUND, () -> one(w.receiver("nowhere")));
        }));

        // AMQP-46, AMQP-79
        all.add(new Scenario("a disabled queue refuses until it is enabled again", w -> {
            String queue = w.queue();
            var sender = w.sender(queue);
            sender.sendMessage(new ServiceBusMessage("before"));
            w.ask("PATCH", "queues/" + queue, "{\"status\": \"SendDisabled\"}");
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED, () -> sender.sendMessage(new ServiceBusMessage("x")));
            w.ask("PATCH", "queues/" + queue, "{\"status\": \"Active\"}");
            sender.sendMessage(new ServiceBusMessage("after"));
            equal(w.drain(queue), List.of("before", "after"), "what is there");
        }));

        // AMQP-46, QUO-05
        all.add(new Scenario("a full queue refuses", w -> {
            String queue = w.queue("{\"maxSizeInMegabytes\": 1}");
            var sender = w.sender(queue);
            refused(ServiceBusFailureReason.QUOTA_EXCEEDED, () -> {
                for (int n = 0; n < 8; n += 1) sender.sendMessage(new ServiceBusMessage(new byte[400_000]));
            });
        }));

        // DUP-01
        all.add(new Scenario("a duplicate is accepted and stored once", w -> {
            String queue = w.queue("{\"requiresDuplicateDetection\": true}");
            var sender = w.sender(queue);
            for (String body : List.of("first", "second")) sender.sendMessage(new ServiceBusMessage(body).setMessageId("same"));
            equal(w.drain(queue), List.of("first"), "what is there");
        }));

        // TOP-01
        all.add(new Scenario("a topic gives each subscription a copy", w -> {
            String topic = w.topic("a", "b");
            var sender = w.keep(w.clients().sender().topicName(topic).buildClient());
            sender.sendMessages(numbered(2));
            for (String subscription : List.of("a", "b")) {
                var receiver = w.subscription(topic, subscription);
                var messages = receive(receiver, 2);
                equal(World.bodies(messages), numbers(2), subscription);
                messages.forEach(receiver::complete);
            }
        }));

        // AMQP-33
        all.add(new Scenario("names may have slashes and any case", w -> {
            String queue = w.queue();
            w.ask("PUT", "queues/" + queue + "%2Fdeep%2FName", "{}");
            w.send(queue + "/deep/name", "x");
            equal(one(w.receiver(queue.toUpperCase() + "/DEEP/NAME")).getBody().toString(), "x", "body");
        }));

        // AMQP-41
        all.add(new Scenario("many sends at the same time are all confirmed", w -> {
            String queue = w.queue();
            var sender = w.keep(w.clients().sender().queueName(queue).buildAsyncClient());
            reactor.core.publisher.Flux.fromIterable(numbered(300)).flatMap(sender::sendMessage).blockLast(Duration.ofSeconds(30));
            equal(w.drain(queue).stream().collect(Collectors.toSet()).size(), 300, "messages");
        }));

        // AMQP-46
        all.add(new Scenario("a message without session is refused where one is required", w -> {
            var sender = w.sender(w.sessions());
            var error = refused(RuntimeException.class, () -> sender.sendMessage(new ServiceBusMessage("x")));
            that(error.getMessage().toLowerCase().contains("session"), error.getMessage());
        }));

        // AMQP-56
        all.add(new Scenario("a received message can be sent again", w -> {
            String queue = w.queue();
            var first = new ServiceBusMessage(BinaryData.fromString("x")).setSubject("tea");
            first.getApplicationProperties().put("n", 1);
            w.sender(queue).sendMessage(first);
            var receiver = w.receiver(queue);
            var message = one(receiver);
            w.sender(queue).sendMessage(new ServiceBusMessage(message));
            receiver.complete(message);
            var again = one(receiver);
            equal(again.getApplicationProperties(), message.getApplicationProperties(), "properties");
            equal(again.getSubject(), "tea", "subject");
            that(again.getSequenceNumber() > message.getSequenceNumber(), "it has the number of the first");
        }));
    }
}
