package sdk;

import static sdk.Check.equal;
import static sdk.Check.refused;
import static sdk.Check.that;
import static sdk.Check.until;
import static sdk.Jms.connection;
import static sdk.Jms.consumer;
import static sdk.Jms.deliveries;
import static sdk.Jms.nothing;
import static sdk.Jms.one;
import static sdk.Jms.send;
import static sdk.Jms.session;
import static sdk.Jms.text;
import static sdk.Jms.texts;

import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.Message;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;

/**
 * Receiving with JMS: acknowledgement, prefetch, listeners, browsers, dead letters, and features
 * that are refused by name.
 */
final class JmsReceiving {
    private JmsReceiving() {}

    /** Asserts a refusal as not implemented (AMQP-99). */
    private static void notOffered(Check.Action action) throws Exception {
        var error = refused(JMSException.class, action);
        that(error.getMessage().contains("amqp:not-implemented"), error.getMessage());
    }

    static void scenarios(List<Scenario> all) {
        // AMQP-60
        all.add(new Scenario("a client acknowledgement completes all received messages", w -> {
            String queue = w.queue("{\"lockDuration\": \"PT2S\"}");
            var session = session(w, Session.CLIENT_ACKNOWLEDGE);
            send(session, queue, "1", "2", "3");
            var consumer = consumer(session, queue);
            one(consumer);
            one(consumer).acknowledge();
            until("two are gone", () -> w.counted(queue, "totalMessageCount") == 1);
            // Prefetched messages stay locked for a while.
            session.close();
            equal(text(one(consumer(session(w), queue))), "3", "what is left");
        }));

        // AMQP-60
        all.add(new Scenario("each message is acknowledged by itself", w -> {
            String queue = w.queue();
            var session = session(w, Jms.INDIVIDUAL_ACKNOWLEDGE);
            send(session, queue, "1", "2", "3");
            var consumer = consumer(session, queue);
            one(consumer);
            one(consumer).acknowledge();
            one(consumer);
            until("one is gone", () -> w.counted(queue, "totalMessageCount") == 2);
        }));

        // AMQP-60
        all.add(new Scenario("lazily acknowledged messages are completed", w -> {
            String queue = w.queue();
            var session = session(w, Session.DUPS_OK_ACKNOWLEDGE);
            send(session, queue, "1", "2");
            equal(texts(consumer(session, queue), 2), List.of("1", "2"), "what comes");
            until("all are gone", () -> w.counted(queue, "totalMessageCount") == 0);
        }));

        // AMQP-60, AMQP-64
        all.add(new Scenario("recovered messages return with a higher count", w -> {
            String queue = w.queue();
            var session = session(w, Session.CLIENT_ACKNOWLEDGE);
            send(session, queue, "x");
            var consumer = consumer(session, queue);
            for (int count = 1; count <= 3; count += 1) {
                Message message = one(consumer);
                deliveries(message, count);
                if (count < 3) session.recover();
                else message.acknowledge();
            }
            until("it is gone", () -> w.counted(queue, "totalMessageCount") == 0);
        }));

        // AMQP-64, DLQ-12
        all.add(new Scenario("a message delivered too often is dead-lettered", w -> {
            String queue = w.queue("{\"maxDeliveryCount\": 2}");
            var session = connection(w).createSession(true, Session.SESSION_TRANSACTED);
            send(session, queue, "x");
            session.commit();
            var consumer = consumer(session, queue);
            for (int count = 1; count <= 2; count += 1) {
                deliveries(one(consumer), count);
                session.rollback();
            }
            nothing(consumer);
            Message dead = one(consumer(session(w), queue + "/$DeadLetterQueue"));
            equal(dead.getStringProperty("DeadLetterReason"), "MaxDeliveryCountExceeded", "reason");
        }));

        // AMQP-48, AMQP-51
        all.add(new Scenario("a receive without waiting drains", w -> {
            String queue = w.queue();
            var session = session(w);
            var consumer = consumer(session, queue);
            for (int n = 0; n < 3; n += 1) {
                that(consumer.receiveNoWait() == null, "something comes");
                send(session, queue, String.valueOf(n));
                until("it comes", () -> {
                    Message message = consumer.receiveNoWait();
                    return message != null;
                });
            }
            // The library does not wait for the broker when it acknowledges.
            until("no message is left", () -> w.counted(queue, "totalMessageCount") == 0);
        }));

        // AMQP-48, AMQP-50
        all.add(new Scenario("without prefetch one is fetched for each receive", w -> {
            String queue = w.queue();
            var session = connection(w, w.broker.amqp(), "?jms.prefetchPolicy.all=0").createSession(Session.AUTO_ACKNOWLEDGE);
            send(session, queue, "1", "2");
            var consumer = consumer(session, queue);
            equal(text(one(consumer)), "1", "body");
            equal(text(one(consumer(session(w), queue))), "2", "what another gets");
            nothing(consumer);
        }));

        // AMQP-39, AMQP-69
        all.add(new Scenario("prefetched messages are released uncounted", w -> {
            String queue = w.queue();
            var session = session(w);
            send(session, queue, "1", "2", "3");
            var consumer = consumer(session, queue);
            equal(text(one(consumer)), "1", "body");
            consumer.close();
            Message message = one(consumer(session(w), queue));
            equal(text(message), "2", "body");
            deliveries(message, 1);
        }));

        // AMQP-50
        all.add(new Scenario("a listener is called for each message", w -> {
            String queue = w.queue();
            var sender = session(w);
            var found = Collections.synchronizedList(new ArrayList<String>());
            consumer(session(w), queue).setMessageListener(message -> {
                try {
                    found.add(text(message));
                } catch (JMSException wrong) {
                    found.add(wrong.getMessage());
                }
            });
            send(sender, queue, "1", "2", "3");
            until("all come", () -> found.equals(List.of("1", "2", "3")));
        }));

        // AMQP-99, PEK-01
        all.add(new Scenario("a browser removes nothing", w -> {
            String queue = w.queue();
            var session = session(w);
            send(session, queue, Sending.numbers(100).toArray(String[]::new));
            var seen = new ArrayList<String>();
            try (var browser = session.createBrowser(session.createQueue(queue))) {
                for (Object message : Collections.list((Enumeration<?>) browser.getEnumeration())) {
                    seen.add(text((Message) message));
                }
            }
            equal(seen, Sending.numbers(100), "what is seen");
            equal(w.counted(queue, "activeMessageCount"), 100, "messages");
            var consumer = consumer(session, queue);
            for (String body : seen) {
                Message message = one(consumer);
                equal(text(message), body, "body");
                deliveries(message, 1);
            }
        }));

        // AMQP-99, PEK-03
        all.add(new Scenario("a browser sees what others have locked, and nothing in an empty queue", w -> {
            String queue = w.queue();
            var session = session(w, Session.CLIENT_ACKNOWLEDGE);
            try (var browser = session.createBrowser(session.createQueue(queue))) {
                that(!browser.getEnumeration().hasMoreElements(), "it sees something");
            }
            send(session, queue, "x");
            Message locked = one(consumer(session, queue));
            try (var browser = session.createBrowser(session.createQueue(queue))) {
                equal(text((Message) browser.getEnumeration().nextElement()), "x", "what is seen");
            }
            locked.acknowledge();
            until("it is gone", () -> w.counted(queue, "totalMessageCount") == 0);
        }));

        // AMQP-59
        all.add(new Scenario("consumers share a queue", w -> {
            String queue = w.queue();
            var found = Collections.synchronizedList(new ArrayList<String>());
            for (int n = 0; n < 2; n += 1) {
                var session = connection(w, w.broker.amqp(), "?jms.prefetchPolicy.all=1").createSession(Session.AUTO_ACKNOWLEDGE);
                consumer(session, queue).setMessageListener(message -> {
                    try {
                        found.add(text(message));
                    } catch (JMSException wrong) {
                        found.add(wrong.getMessage());
                    }
                });
            }
            var all100 = Sending.numbers(100);
            send(session(w), queue, all100.toArray(String[]::new));
            until("all come once", () -> found.size() == 100);
            equal(found.stream().sorted().toList(), all100.stream().sorted().toList(), "what comes");
        }));

        // AMQP-99
        all.add(new Scenario("selectors are refused by name", w -> {
            var session = session(w);
            var queue = session.createQueue(w.queue());
            notOffered(() -> session.createConsumer(queue, "colour = 'red'"));
            notOffered(() -> {
                try (var browser = session.createBrowser(queue, "colour = 'red'")) {
                    browser.getEnumeration().hasMoreElements();
                }
            });
        }));

        // AMQP-99
        all.add(new Scenario("durable and shared subscriptions are refused by name", w -> {
            var connection = Jms.at(w, "amqp://" + w.broker.amqp() + "?jms.clientID=" + w.unique(), w.broker.key);
            var session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            var topic = session.createTopic(w.topic("s"));
            notOffered(() -> session.createDurableConsumer(topic, "durable"));
            // This library reads the offered capabilities of the connection, and refuses itself.
            refused(JMSException.class, () -> session.createSharedConsumer(topic, "shared"));
            refused(JMSException.class, () -> session.createSharedDurableConsumer(topic, "both"));
        }));

        // AMQP-99, AMQP-96
        all.add(new Scenario("temporary queues and topics are refused by name", w -> {
            var session = session(w);
            notOffered(session::createTemporaryQueue);
            notOffered(session::createTemporaryTopic);
        }));

        // AMQP-08, SEC-14
        all.add(new Scenario("a wrong password is refused", w ->
            refused(JMSSecurityException.class, () -> Jms.at(w, "amqp://" + w.broker.amqp(), Rights.WRONG))));

        // AMQP-08, AMQP-25, SEC-12
        all.add(new Scenario("a policy has the rights that it grants", w -> {
            String queue = w.queue();
            String key = w.policy(queue, "mouth", "Send");
            var factory = new org.apache.qpid.jms.JmsConnectionFactory("mouth", key, "amqp://" + w.broker.amqp());
            var connection = w.keep(factory.createConnection());
            connection.start();
            var session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            send(session, queue, "x");
            refused(JMSSecurityException.class, () -> consumer(session, queue));
            equal(w.counted(queue, "activeMessageCount"), 1, "messages");
        }));
    }
}
