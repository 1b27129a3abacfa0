package sdk;

import static sdk.Check.equal;
import static sdk.Check.refused;
import static sdk.Check.until;
import static sdk.Jms.consumer;
import static sdk.Jms.nothing;
import static sdk.Jms.one;
import static sdk.Jms.send;
import static sdk.Jms.text;
import static sdk.Jms.texts;

import jakarta.jms.JMSException;
import jakarta.jms.Session;
import jakarta.jms.TransactionRolledBackException;
import java.util.List;

/** Failover of JMS: connections that are cut, brokers that are killed or stopped. */
final class JmsFailures {
    private JmsFailures() {}

    private static String failover(String address) {
        return "failover:(amqp://" + address + ")?failover.initialReconnectDelay=100&failover.reconnectDelay=200"
            + "&failover.maxReconnectDelay=500";
    }

    static void scenarios(List<Scenario> all) {
        // SND-29
        all.add(new Scenario("a producer continues after a kill", w -> w.own(broker -> {
            var session = Jms.at(w, failover(broker.amqp()), broker.key).createSession(Session.AUTO_ACKNOWLEDGE);
            send(session, "q", "1", "2");
            broker.kill();
            broker.start();
            send(session, "q", "3");
            equal(texts(consumer(session, "q"), 3), List.of("1", "2", "3"), "what is there");
        })));

        // SET-21
        all.add(new Scenario("a consumer continues after a kill", w -> w.own(broker -> {
            var session = Jms.at(w, failover(broker.amqp()), broker.key).createSession(Session.AUTO_ACKNOWLEDGE);
            var consumer = consumer(session, "q");
            send(session, "q", "1");
            equal(text(one(consumer)), "1", "body");
            // The client does not wait for an acknowledgement.
            until("it is acknowledged", () -> World.counted(broker, "q", "totalMessageCount") == 0);
            broker.kill();
            broker.start();
            send(session, "q", "2");
            equal(text(one(consumer)), "2", "body");
        })));

        // AMQP-91
        all.add(new Scenario("a stopping broker notifies clients and they reconnect", w -> w.own(broker -> {
            var session = Jms.at(w, failover(broker.amqp()), broker.key).createSession(Session.AUTO_ACKNOWLEDGE);
            var consumer = consumer(session, "q");
            send(session, "q", "1");
            equal(text(one(consumer)), "1", "body");
            broker.stop();
            broker.start();
            send(session, "q", "2");
            equal(text(one(consumer)), "2", "body");
        })));

        // SET-21
        all.add(new Scenario("a cut connection is reopened", w -> {
            String queue = w.queue();
            var line = w.line();
            var session = Jms.at(w, failover(line.address()), w.broker.key).createSession(Session.AUTO_ACKNOWLEDGE);
            var consumer = consumer(session, queue);
            send(session, queue, "1");
            equal(text(one(consumer)), "1", "body");
            until("it is acknowledged", () -> w.counted(queue, "totalMessageCount") == 0);
            line.cut();
            send(session, queue, "2");
            equal(text(one(consumer)), "2", "body");
        }));

        // TXN-12, AMQP-100
        all.add(new Scenario("a transaction ends with its connection", w -> {
            String queue = w.queue();
            var line = w.line();
            var session = Jms.at(w, failover(line.address()), w.broker.key).createSession(true, Session.SESSION_TRANSACTED);
            send(session, queue, "lost");
            line.cut();
            refused(TransactionRolledBackException.class, session::commit);
            send(session, queue, "kept");
            session.commit();
            var consumer = consumer(Jms.session(w), queue);
            equal(text(one(consumer)), "kept", "body");
            nothing(consumer);
        }));

        // AMQP-79
        all.add(new Scenario("a deleted queue ends its links", w -> {
            String queue = w.queue();
            var session = Jms.session(w);
            var producer = session.createProducer(session.createQueue(queue));
            producer.send(session.createTextMessage("x"));
            w.ask("DELETE", "queues/" + queue, null);
            refused(JMSException.class, () -> producer.send(session.createTextMessage("y")));
        }));
    }
}
