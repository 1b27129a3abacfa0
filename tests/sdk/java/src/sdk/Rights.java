package sdk;

import static sdk.Check.condition;
import static sdk.Check.equal;
import static sdk.Check.refused;
import static sdk.Check.that;
import static sdk.World.one;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.util.List;

/** Access: keys, rights, tokens that expire, connection strings of entities. */
final class Rights {
    static final String WRONG = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    private Rights() {}

    private static ServiceBusSenderClient sender(World w, ServiceBusClientBuilder clients, String queue) {
        return w.keep(clients.sender().queueName(queue).buildClient());
    }

    static void scenarios(List<Scenario> all) {
        // AMQP-21, SEC-14
        all.add(new Scenario("a wrong key is refused", w -> {
            String queue = w.queue();
            var sender = sender(w, w.clients(w.broker.policyString(Broker.ROOT, WRONG), 0), queue);
            var error = refused(ServiceBusFailureReason.UNAUTHORIZED, () -> sender.sendMessage(new ServiceBusMessage("x")));
            that(!error.getMessage().contains(WRONG), "the key is told");
            equal(w.counted(queue, "totalMessageCount"), 0, "messages");
        }));

        // AMQP-25, SEC-05
        all.add(new Scenario("a policy that may listen may not send", w -> {
            String queue = w.queue();
            w.send(queue, "x");
            var clients = w.clients(w.broker.policyString("ears", w.policy(queue, "ears", "Listen")), 0);
            var sender = sender(w, clients, queue);
            refused(ServiceBusFailureReason.UNAUTHORIZED, () -> sender.sendMessage(new ServiceBusMessage("y")));
            var receiver = w.receiver(clients, queue, builder -> builder);
            receiver.complete(one(receiver));
        }));

        // AMQP-25, SEC-05
        all.add(new Scenario("a policy that may send may not listen", w -> {
            String queue = w.queue();
            var clients = w.clients(w.broker.policyString("mouth", w.policy(queue, "mouth", "Send")), 0);
            sender(w, clients, queue).sendMessage(new ServiceBusMessage("x"));
            condition(AmqpErrorCondition.UNAUTHORIZED_ACCESS, () -> one(w.receiver(clients, queue, builder -> builder)));
            equal(w.drain(queue), List.of("x"), "what is there");
        }));

        // SEC-12, SEC-13
        all.add(new Scenario("a policy of one queue is refused at another", w -> {
            String queue = w.queue();
            String other = w.queue();
            var clients = w.clients(w.broker.policyString("mine", w.policy(queue, "mine", "Send", "Listen")), 0);
            sender(w, clients, queue).sendMessage(new ServiceBusMessage("x"));
            refused(ServiceBusFailureReason.UNAUTHORIZED, () -> sender(w, clients, other).sendMessage(new ServiceBusMessage("x")));
        }));

        // SEC-18, SEC-20
        all.add(new Scenario("a connection string may be of one queue", w -> {
            String queue = w.queue();
            var clients = w.clients(w.broker.connectionString() + ";EntityPath=" + queue);
            w.keep(clients.sender().buildClient()).sendMessage(new ServiceBusMessage("x"));
            equal(w.drain(queue), List.of("x"), "what is there");
        }));

        // SEC-10, AMQP-24
        all.add(new Scenario("a token signed earlier is accepted", w -> {
            String queue = w.queue();
            String token = Broker.sign(Broker.ROOT, w.broker.key, "sb://" + w.broker.amqp() + "/" + queue, 60);
            sender(w, w.clients(w.broker.tokenString(token)), queue).sendMessage(new ServiceBusMessage("x"));
            equal(w.drain(queue), List.of("x"), "what is there");
        }));

        // AMQP-24, SEC-14
        all.add(new Scenario("a token that has ended is refused", w -> {
            String queue = w.queue();
            String token = Broker.sign(Broker.ROOT, w.broker.key, "sb://" + w.broker.amqp() + "/" + queue, -5);
            var sender = sender(w, w.clients(w.broker.tokenString(token), 0), queue);
            refused(RuntimeException.class, () -> sender.sendMessage(new ServiceBusMessage("x")));
        }));

        // AMQP-26, SEC-15
        all.add(new Scenario("a link ends with its token", w -> {
            String queue = w.queue();
            String token = Broker.sign(Broker.ROOT, w.broker.key, "sb://" + w.broker.amqp() + "/" + queue, 4);
            var sender = sender(w, w.clients(w.broker.tokenString(token), 0), queue);
            sender.sendMessage(new ServiceBusMessage("in time"));
            Thread.sleep(5_500);
            refused(RuntimeException.class, () -> sender.sendMessage(new ServiceBusMessage("late")));
            equal(w.drain(queue), List.of("in time"), "what is there");
        }));
    }
}
