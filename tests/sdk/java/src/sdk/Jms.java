package sdk;

import static sdk.Check.equal;
import static sdk.Check.that;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Shared parts of JMS scenarios. The policy is the user and its key the password (AMQP-08). */
final class Jms {
    private Jms() {}

    /** The mode of Qpid JMS in which each message is acknowledged individually. */
    static final int INDIVIDUAL_ACKNOWLEDGE = 101;

    static Connection connection(World w) throws JMSException {
        return connection(w, w.broker.amqp(), "");
    }

    /** A connection with these URL options. */
    static Connection connection(World w, String address, String options) throws JMSException {
        return at(w, "amqp://" + address + options, w.broker.key);
    }

    static Connection at(World w, String url, String key) throws JMSException {
        Connection connection = w.keep(new JmsConnectionFactory(Broker.ROOT, key, url).createConnection());
        connection.start();
        return connection;
    }

    static Session session(World w) throws JMSException {
        return session(w, Session.AUTO_ACKNOWLEDGE);
    }

    static Session session(World w, int mode) throws JMSException {
        return connection(w).createSession(mode);
    }

    static void send(Session session, String queue, String... bodies) throws JMSException {
        try (MessageProducer producer = session.createProducer(session.createQueue(queue))) {
            for (String body : bodies) producer.send(session.createTextMessage(body));
        }
    }

    static MessageConsumer consumer(Session session, String queue) throws JMSException {
        return session.createConsumer(session.createQueue(queue));
    }

    static Message one(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(Check.PATIENCE.toMillis());
        that(message != null, "nothing comes");
        return message;
    }

    static String text(Message message) throws JMSException {
        return ((TextMessage) message).getText();
    }

    static List<String> texts(MessageConsumer consumer, int count) throws JMSException {
        var found = new ArrayList<String>();
        for (int n = 0; n < count; n += 1) found.add(text(one(consumer)));
        return found;
    }

    static void nothing(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(500);
        that(message == null, "something comes");
    }

    /** Asserts the number of deliveries, including this one. */
    static void deliveries(Message message, int expected) throws JMSException {
        equal(message.getIntProperty("JMSXDeliveryCount"), expected, "deliveries");
        equal(message.getJMSRedelivered(), expected > 1, "redelivered");
    }
}
