package sdk;

import static sdk.Check.equal;
import static sdk.Check.refused;
import static sdk.Check.that;
import static sdk.Check.until;
import static sdk.Jms.consumer;
import static sdk.Jms.nothing;
import static sdk.Jms.one;
import static sdk.Jms.session;
import static sdk.Jms.text;
import static sdk.Jms.texts;

import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.StreamMessage;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** JMS messages: kinds, headers, properties, expiry, delay, sizes. */
final class JmsMessages {
    private JmsMessages() {}

    static void scenarios(List<Scenario> all) {
        // AMQP-08, AMQP-45
        all.add(new Scenario("text and bytes arrive as sent", w -> {
            String queue = w.queue();
            var session = session(w);
            var producer = session.createProducer(session.createQueue(queue));
            producer.send(session.createTextMessage("zwei Kaffee ☕"));
            var bytes = session.createBytesMessage();
            bytes.writeInt(7);
            bytes.writeUTF("x");
            producer.send(bytes);
            producer.send(session.createMessage());
            var consumer = consumer(session, queue);
            equal(text(one(consumer)), "zwei Kaffee ☕", "text");
            var found = (BytesMessage) one(consumer);
            equal(found.readInt(), 7, "number");
            equal(found.readUTF(), "x", "text");
            that(one(consumer) != null, "the empty one is lost");
            until("no message is left", () -> w.counted(queue, "totalMessageCount") == 0);
        }));

        // AMQP-45
        all.add(new Scenario("maps, streams and objects arrive as sent", w -> {
            String queue = w.queue();
            var session = session(w);
            var producer = session.createProducer(session.createQueue(queue));
            var map = session.createMapMessage();
            map.setString("text", "a");
            map.setLong("number", 1L << 40);
            map.setBytes("bytes", new byte[] {1, 2});
            producer.send(map);
            var stream = session.createStreamMessage();
            stream.writeBoolean(true);
            stream.writeDouble(0.5);
            stream.writeString("b");
            producer.send(stream);
            producer.send(session.createObjectMessage(new java.util.ArrayList<>(List.of("c", 3))));
            var consumer = consumer(session, queue);
            var foundMap = (MapMessage) one(consumer);
            equal(foundMap.getString("text"), "a", "text");
            equal(foundMap.getLong("number"), 1L << 40, "number");
            equal(foundMap.getBytes("bytes"), new byte[] {1, 2}, "bytes");
            var foundStream = (StreamMessage) one(consumer);
            equal(foundStream.readBoolean(), true, "boolean");
            equal(foundStream.readDouble(), 0.5, "double");
            equal(foundStream.readString(), "b", "text");
            equal(((ObjectMessage) one(consumer)).getObject(), List.of("c", 3), "object");
        }));

        // AMQP-44, AMQP-45
        all.add(new Scenario("headers and properties are kept", w -> {
            String queue = w.queue();
            var session = session(w);
            var sent = session.createTextMessage("x");
            sent.setJMSCorrelationID("c-1");
            sent.setJMSType("tea");
            sent.setJMSReplyTo(session.createQueue("replies"));
            sent.setBooleanProperty("yes", true);
            sent.setByteProperty("i8", (byte) -8);
            sent.setShortProperty("i16", (short) -1600);
            sent.setIntProperty("i32", -320_000);
            sent.setLongProperty("i64", -1L << 60);
            sent.setFloatProperty("f32", 1.5f);
            sent.setDoubleProperty("f64", 0.1);
            sent.setStringProperty("text", "zwölf");
            session.createProducer(session.createQueue(queue)).send(sent);
            Message found = one(consumer(session, queue));
            equal(found.getJMSMessageID(), sent.getJMSMessageID(), "message id");
            equal(found.getJMSCorrelationID(), "c-1", "correlation id");
            equal(found.getJMSType(), "tea", "type");
            equal(((Queue) found.getJMSReplyTo()).getQueueName(), "replies", "reply to");
            equal(((Queue) found.getJMSDestination()).getQueueName(), queue, "destination");
            equal(found.getJMSDeliveryMode(), DeliveryMode.PERSISTENT, "delivery mode");
            var expected = Map.<String, Object>of("yes", true, "i8", (byte) -8, "i16", (short) -1600, "i32", -320_000,
                "i64", -1L << 60, "f32", 1.5f, "f64", 0.1, "text", "zwölf");
            for (String name : Collections.list((java.util.Enumeration<?>) found.getPropertyNames()).stream().map(String::valueOf).toList()) {
                if (!name.startsWith("JMSX")) equal(found.getObjectProperty(name), expected.get(name), name);
            }
            for (String name : expected.keySet()) that(found.propertyExists(name), name + " is lost");
        }));

        // AMQP-44, EXP-20
        all.add(new Scenario("a message expires at the end of its time to live", w -> {
            String queue = w.queue("{\"deadLetteringOnMessageExpiration\": true}");
            var session = session(w);
            var producer = session.createProducer(session.createQueue(queue));
            producer.setTimeToLive(1_000);
            producer.send(session.createTextMessage("short"));
            producer.setTimeToLive(600_000);
            producer.send(session.createTextMessage("long"));
            Thread.sleep(1_200);
            var message = one(consumer(session, queue));
            equal(text(message), "long", "body");
            that(message.getJMSExpiration() > System.currentTimeMillis() + 500_000, "it expires at " + message.getJMSExpiration());
            until("the other is dead-lettered", () -> w.counted(queue, "deadLetterMessageCount") == 1);
        }));

        // AMQP-101, SCH-02
        all.add(new Scenario("a delivery delay is a schedule", w -> {
            String queue = w.queue();
            var session = session(w);
            var producer = session.createProducer(session.createQueue(queue));
            producer.setDeliveryDelay(3_000);
            long began = System.currentTimeMillis();
            producer.send(session.createTextMessage("later"));
            equal(w.counted(queue, "scheduledMessageCount"), 1, "scheduled");
            equal(text(one(consumer(session, queue))), "later", "body");
            that(System.currentTimeMillis() - began >= 2_900, "it came too early");
        }));

        // AMQP-58
        all.add(new Scenario("priorities change no order", w -> {
            String queue = w.queue();
            var session = session(w);
            var producer = session.createProducer(session.createQueue(queue));
            for (int priority : List.of(1, 9, 4)) {
                producer.send(session.createTextMessage(String.valueOf(priority)), DeliveryMode.PERSISTENT, priority, 0);
            }
            equal(texts(consumer(session, queue), 3), List.of("1", "9", "4"), "order");
        }));

        // AMQP-41
        all.add(new Scenario("sends are confirmed to a listener", w -> {
            String queue = w.queue();
            var session = session(w);
            var producer = session.createProducer(session.createQueue(queue));
            var left = new java.util.concurrent.CountDownLatch(100);
            var failed = new CompletableFuture<Exception>();
            var listener = new CompletionListener() {
                @Override
                public void onCompletion(Message message) {
                    left.countDown();
                }

                @Override
                public void onException(Message message, Exception error) {
                    failed.complete(error);
                }
            };
            for (int n = 0; n < 100; n += 1) producer.send(session.createTextMessage(String.valueOf(n)), listener);
            that(left.await(20, java.util.concurrent.TimeUnit.SECONDS), "not all are confirmed: " + failed.getNow(null));
            equal(w.counted(queue, "activeMessageCount"), 100, "messages");
        }));

        // AMQP-31, AMQP-43
        all.add(new Scenario("a large message arrives whole, and one that is too large is refused", w -> {
            String queue = w.queue();
            var session = session(w);
            var producer = session.createProducer(session.createQueue(queue));
            byte[] body = "0123456789abcdef!".repeat(58_000).getBytes();
            var large = session.createBytesMessage();
            large.writeBytes(body);
            producer.send(large);
            var larger = session.createBytesMessage();
            larger.writeBytes(new byte[1 << 20]);
            refused(JMSException.class, () -> producer.send(larger));
            producer.send(session.createTextMessage("small"));
            var consumer = consumer(session, queue);
            var found = (BytesMessage) one(consumer);
            byte[] bytes = new byte[body.length];
            equal(found.readBytes(bytes), body.length, "length");
            that(Arrays.equals(bytes, body), "the body differs");
            equal(text(one(consumer)), "small", "body");
        }));

        // TOP-01, AMQP-33
        all.add(new Scenario("a topic is published to, and a subscription received as a queue", w -> {
            String topic = w.topic("a", "b");
            var session = session(w);
            session.createProducer(session.createTopic(topic)).send(session.createTextMessage("x"));
            for (String subscription : List.of("a", "b")) {
                equal(text(one(consumer(session, topic + "/Subscriptions/" + subscription))), "x", subscription);
            }
        }));

        // AMQP-36, AMQP-90
        all.add(new Scenario("an absent queue is refused", w -> {
            var session = session(w);
            var error = refused(InvalidDestinationException.class, () -> session.createProducer(session.createQueue("nowhere")));
            that(error.getMessage().contains("nowhere"), error.getMessage());
            refused(InvalidDestinationException.class, () -> consumer(session, "nowhere"));
        }));

        // AMQP-46
        all.add(new Scenario("a queue with sessions refuses a message without a group", w -> {
            var session = session(w);
            String sessions = w.sessions();
            var producer = session.createProducer(session.createQueue(sessions));
            var error = refused(JMSException.class, () -> producer.send(session.createTextMessage("x")));
            that(error.getMessage().toLowerCase().contains("session"), error.getMessage());
            // The group is its session id.
            var grouped = session.createTextMessage("y");
            grouped.setStringProperty("JMSXGroupID", "a");
            session.createProducer(session.createQueue(sessions)).send(grouped);
            equal(w.counted(sessions, "activeMessageCount"), 1, "messages");
            nothing(consumer(session, w.queue()));
        }));
    }
}
