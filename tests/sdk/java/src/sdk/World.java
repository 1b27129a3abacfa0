package sdk;

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.net.URI;
import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.UnaryOperator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The environment of a scenario: clients over one connection, and its own entities on a shared
 * broker.
 */
final class World implements AutoCloseable {
    final Broker broker;
    private final String name;
    private int count;
    private final List<AutoCloseable> opened = new ArrayList<>();
    private ServiceBusClientBuilder builder;

    World(Broker broker, String name) {
        this.broker = broker;
        this.name = name;
    }

    /** Registers a client to be closed with the scenario. */
    <C extends AutoCloseable> C keep(C client) {
        opened.add(client);
        return client;
    }

    @Override
    public void close() {
        for (int n = opened.size() - 1; n >= 0; n -= 1) {
            try {
                opened.get(n).close();
            } catch (Exception gone) {
                // A client whose broker or entity the scenario has broken may fail to close.
            }
        }
    }

    /** Clients with this connection string, which share a connection. */
    ServiceBusClientBuilder clients(String text) {
        return clients(text, 2);
    }

    ServiceBusClientBuilder clients(String text, int retries) {
        var retry = new AmqpRetryOptions()
            .setMode(AmqpRetryMode.FIXED)
            .setMaxRetries(retries)
            .setDelay(Duration.ofMillis(300))
            .setTryTimeout(Duration.ofSeconds(20));
        return new ServiceBusClientBuilder().connectionString(text).retryOptions(retry);
    }

    /** The clients of the scenario. */
    synchronized ServiceBusClientBuilder clients() {
        if (builder == null) builder = clients(broker.trust == null ? broker.connectionString() : broker.secureString("amqp"));
        return builder;
    }

    String unique() {
        count += 1;
        return name + "-" + count;
    }

    void ask(String method, String path, String body) throws Exception {
        broker.ask(method, path, body);
    }

    String queue() throws Exception {
        return queue("{}");
    }

    /** Creates a queue with these properties in JSON. */
    String queue(String properties) throws Exception {
        String queue = unique();
        ask("PUT", "queues/" + queue, properties);
        return queue;
    }

    String sessions() throws Exception {
        return queue("{\"requiresSession\": true}");
    }

    String topic(String... subscriptions) throws Exception {
        String topic = unique();
        ask("PUT", "topics/" + topic, "{}");
        for (String subscription : subscriptions) ask("PUT", "topics/" + topic + "/subscriptions/" + subscription, "{}");
        return topic;
    }

    /** A number in the runtime properties of a queue. */
    int counted(String queue, String what) throws Exception {
        return counted(broker, queue, what);
    }

    static int counted(Broker broker, String queue, String what) throws Exception {
        String told = broker.ask("GET", "queues/" + queue, null);
        Matcher number = Pattern.compile("\"" + what + "\":(\\d+)").matcher(told);
        Check.that(number.find(), what + " is not told: " + told);
        return Integer.parseInt(number.group(1));
    }

    /** Creates a policy. Returns its key. */
    String policy(String queue, String policy, String... rights) throws Exception {
        String path = "queues/" + queue + "/policies/" + policy;
        ask("PUT", path, "{\"rights\": [\"" + String.join("\", \"", rights) + "\"]}");
        Matcher key = Pattern.compile("\"primaryKey\":\"([^\"]+)\"").matcher(broker.ask("POST", path + "/keys", null));
        Check.that(key.find(), "no key is told");
        return key.group(1);
    }

    ServiceBusSenderClient sender(String queue) {
        return keep(clients().sender().queueName(queue).buildClient());
    }

    /** A receiver that does not renew locks. */
    ServiceBusReceiverClient receiver(String queue) {
        return receiver(queue, builder -> builder);
    }

    ServiceBusReceiverClient receiver(
        String queue, UnaryOperator<ServiceBusClientBuilder.ServiceBusReceiverClientBuilder> more) {
        return receiver(clients(), queue, more);
    }

    ServiceBusReceiverClient receiver(
        ServiceBusClientBuilder clients, String queue, UnaryOperator<ServiceBusClientBuilder.ServiceBusReceiverClientBuilder> more) {
        var builder = clients.receiver().queueName(queue).disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO);
        return keep(more.apply(builder).buildClient());
    }

    ServiceBusReceiverClient deadLetters(String queue) {
        return receiver(queue, builder -> builder.subQueue(SubQueue.DEAD_LETTER_QUEUE));
    }

    ServiceBusReceiverClient subscription(String topic, String subscription) {
        return keep(clients().receiver().topicName(topic).subscriptionName(subscription)
            .disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    /**
     * Accepts a session of a queue over a connection of its own. The SDK does not wait for the
     * answer when it closes a session, so the session may be held a little longer.
     */
    ServiceBusReceiverClient accept(String queue, String session) throws Exception {
        var receivers = keep(sessionReceivers(clients(broker.connectionString()), queue).buildClient());
        var accepted = new AtomicReference<ServiceBusReceiverClient>();
        Check.until("the session is free", () -> {
            try {
                accepted.set(receivers.acceptSession(session));
                return true;
            } catch (AmqpException held) {
                if (held.getErrorCondition() != AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED) throw held;
                return false;
            }
        });
        return keep(accepted.get());
    }

    ServiceBusClientBuilder.ServiceBusSessionReceiverClientBuilder sessionReceivers(String queue) {
        return sessionReceivers(clients(), queue);
    }

    private static ServiceBusClientBuilder.ServiceBusSessionReceiverClientBuilder sessionReceivers(
        ServiceBusClientBuilder clients, String queue) {
        return clients.sessionReceiver().queueName(queue).disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO);
    }

    /** Sends bodies, one after another. */
    void send(String queue, String... bodies) {
        try (ServiceBusSenderClient sender = clients().sender().queueName(queue).buildClient()) {
            for (String body : bodies) sender.sendMessage(new ServiceBusMessage(body));
        }
    }

    void sendTo(String queue, String session, String... bodies) {
        try (ServiceBusSenderClient sender = clients().sender().queueName(queue).buildClient()) {
            for (String body : bodies) sender.sendMessage(new ServiceBusMessage(body).setSessionId(session));
        }
    }

    /** Receives `count` messages in any number of calls. */
    static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int count) {
        var found = new ArrayList<ServiceBusReceivedMessage>();
        long end = System.nanoTime() + Check.PATIENCE.toNanos();
        while (found.size() < count) {
            Duration left = Duration.ofNanos(end - System.nanoTime());
            Check.that(!left.isNegative(), "received " + found.size() + " messages, not " + count);
            receiver.receiveMessages(count - found.size(), left).forEach(found::add);
        }
        return found;
    }

    static ServiceBusReceivedMessage one(ServiceBusReceiverClient receiver) {
        return receive(receiver, 1).get(0);
    }

    static void nothing(ServiceBusReceiverClient receiver) {
        Check.equal(bodies(receiver.receiveMessages(1, Duration.ofMillis(500))), List.of(), "what was received");
    }

    static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        var all = new ArrayList<String>();
        messages.forEach(message -> all.add(message.getBody().toString()));
        return all;
    }

    /** Receives and deletes all messages of a queue. Returns their bodies. */
    List<String> drain(String queue) throws Exception {
        return drain(clients(), broker, queue);
    }

    static List<String> drain(ServiceBusClientBuilder clients, Broker broker, String queue) throws Exception {
        int count = counted(broker, queue, "activeMessageCount");
        var builder = clients.receiver().queueName(queue).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE);
        try (ServiceBusReceiverClient receiver = builder.disableAutoComplete().buildClient()) {
            return count == 0 ? List.of() : bodies(receive(receiver, count));
        }
    }

    /** An action with a broker. */
    interface WithBroker {
        void run(Broker broker) throws Exception;
    }

    /** Runs with a broker of its own, which the scenario may kill, and which has the queue `q`. */
    void own(WithBroker action, String... flags) throws Exception {
        var place = Files.createTempDirectory("peeklock-sdk-java-own-");
        try (Broker own = new Broker(broker.program, place.resolve("broker"), flags)) {
            own.ask("PUT", "queues/q", "{}");
            action.run(own);
        }
        try (var all = Files.walk(place)) {
            for (var path : all.sorted(Comparator.reverseOrder()).toList()) Files.delete(path);
        }
    }

    /** A proxy to the broker that can cut its connections. */
    Line line() throws Exception {
        return keep(new Line(URI.create("tcp://" + broker.amqp()).getPort()));
    }
}
