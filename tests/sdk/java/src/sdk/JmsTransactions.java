package sdk;

import static sdk.Check.equal;
import static sdk.Check.refused;
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
import jakarta.jms.Message;
import jakarta.jms.Session;
import jakarta.jms.TransactionRolledBackException;
import java.util.List;

/** Transacted JMS sessions: over one queue and several. */
final class JmsTransactions {
    private JmsTransactions() {}

    private static Session transacted(World w) throws JMSException {
        return connection(w).createSession(true, Session.SESSION_TRANSACTED);
    }

    static void scenarios(List<Scenario> all) {
        // TXN-01, TXN-03, AMQP-97, AMQP-98
        all.add(new Scenario("sent messages appear at the commit", w -> {
            String queue = w.queue();
            var session = transacted(w);
            send(session, queue, "1", "2");
            equal(w.counted(queue, "totalMessageCount"), 0, "messages before");
            session.commit();
            equal(texts(consumer(session(w), queue), 2), List.of("1", "2"), "what is there");
        }));

        // TXN-04
        all.add(new Scenario("rolled back messages are not sent", w -> {
            String queue = w.queue();
            var session = transacted(w);
            send(session, queue, "1");
            session.rollback();
            send(session, queue, "2");
            session.commit();
            var consumer = consumer(session(w), queue);
            equal(text(one(consumer)), "2", "what is there");
            nothing(consumer);
        }));

        // TXN-04, AMQP-66
        all.add(new Scenario("received messages return after a rollback, counted", w -> {
            String queue = w.queue();
            send(session(w), queue, "x");
            var session = transacted(w);
            var consumer = consumer(session, queue);
            deliveries(one(consumer), 1);
            session.rollback();
            deliveries(one(consumer), 2);
            session.commit();
            equal(w.counted(queue, "totalMessageCount"), 0, "messages left");
        }));

        // TXN-09, AMQP-98
        all.add(new Scenario("a message moves from one queue to another", w -> {
            String from = w.queue();
            String to = w.queue();
            send(session(w), from, "order");
            var session = transacted(w);
            Message order = one(consumer(session, from));
            send(session, to, text(order) + " parcel");
            equal(w.counted(to, "totalMessageCount"), 0, "messages before");
            session.commit();
            equal(text(one(consumer(session(w), to))), "order parcel", "body");
            equal(w.counted(from, "totalMessageCount"), 0, "messages left");
        }));

        // TXN-09, TXN-04
        all.add(new Scenario("a move is undone on both sides", w -> {
            String from = w.queue();
            String to = w.queue();
            send(session(w), from, "order");
            var session = transacted(w);
            var consumer = consumer(session, from);
            one(consumer);
            send(session, to, "parcel");
            session.rollback();
            deliveries(one(consumer), 2);
            equal(w.counted(to, "totalMessageCount"), 0, "messages");
            session.commit();
        }));

        // TXN-01
        all.add(new Scenario("several are received and committed together", w -> {
            String queue = w.queue();
            send(session(w), queue, Sending.numbers(20).toArray(String[]::new));
            var session = transacted(w);
            equal(texts(consumer(session, queue), 10), Sending.numbers(10), "what comes");
            session.commit();
            equal(w.counted(queue, "totalMessageCount"), 10, "messages left");
        }));

        // TXN-12
        all.add(new Scenario("a session that closes rolls back", w -> {
            String queue = w.queue("{\"lockDuration\": \"PT2S\"}");
            send(session(w), queue, "received");
            var connection = connection(w);
            var session = connection.createSession(true, Session.SESSION_TRANSACTED);
            one(consumer(session, queue));
            send(session, queue, "sent");
            connection.close();
            // It may have been delivered once more before the end, and is then locked for a while.
            var consumer = consumer(session(w), queue);
            Message message = one(consumer);
            equal(text(message), "received", "body");
            nothing(consumer);
        }));

        // AMQP-100, TXN-07
        all.add(new Scenario("a transaction that cannot be committed is rolled back", w -> {
            String queue = w.queue("{\"lockDuration\": \"PT1S\"}");
            send(session(w), queue, "x");
            var session = transacted(w);
            one(consumer(session, queue));
            send(session, queue, "y");
            // The lock of the message ends before the commit.
            Thread.sleep(1_500);
            refused(TransactionRolledBackException.class, session::commit);
            equal(w.counted(queue, "totalMessageCount"), 1, "messages");
        }));
    }
}
