package sdk;

import static sdk.Check.equal;
import static sdk.Check.refused;
import static sdk.Check.that;
import static sdk.Check.until;
import static sdk.World.bodies;
import static sdk.World.one;
import static sdk.World.receive;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.net.ssl.SSLContext;

/**
 * External failures: a broker that is killed or stopped, connections that are cut, entities that
 * are deleted; and ways to connect.
 */
final class Failures {
    private Failures() {}

    static void scenarios(List<Scenario> all) {
        // AMQP-79, SND-29
        all.add(new Scenario("acknowledged messages are there after a kill", w -> w.own(broker -> {
            var clients = w.clients(broker.connectionString(), 20);
            var sender = w.keep(clients.sender().queueName("q").buildClient());
            for (var message : Sending.numbered(20)) sender.sendMessage(message);
            broker.kill();
            broker.start();
            sender.sendMessage(new ServiceBusMessage("20"));
            equal(World.drain(clients, broker, "q"), Sending.numbers(21), "what is there");
        })));

        // AMQP-41, FND-02
        all.add(new Scenario("nothing accepted is missing after kills in the middle", w -> w.own(broker -> {
            var clients = w.clients(broker.connectionString(), 20);
            Set<String> accepted = ConcurrentHashMap.newKeySet();
            var isOver = new AtomicBoolean();
            var senders = new ArrayList<Thread>();
            for (int number = 0; number < 4; number += 1) {
                var sender = w.keep(clients.sender().queueName("q").buildClient());
                String name = number + "-";
                var thread = new Thread(() -> {
                    for (int n = 0; !isOver.get(); n += 1) {
                        try {
                            sender.sendMessage(new ServiceBusMessage(name + n));
                            accepted.add(name + n);
                        } catch (RuntimeException unknown) {
                            // The outcome of the send is unknown.
                        }
                    }
                });
                thread.setDaemon(true);
                thread.start();
                senders.add(thread);
            }
            try {
                for (int kill = 0; kill < 2; kill += 1) {
                    goOn(accepted);
                    broker.kill();
                    broker.start();
                }
                goOn(accepted);
            } finally {
                isOver.set(true);
            }
            for (Thread sender : senders) sender.join();
            // A message without an answer may be absent, stored once, or stored twice.
            accepted.removeAll(World.drain(w.clients(broker.connectionString()), broker, "q"));
            equal(accepted, Set.of(), "what is missing");
        })));

        // SET-21, SET-24
        all.add(new Scenario("a processor continues after a kill", w -> w.own(broker -> {
            var clients = w.clients(broker.connectionString(), 20);
            var found = Collections.synchronizedList(new ArrayList<String>());
            w.keep(clients.processor().queueName("q")
                .processMessage(context -> found.add(context.getMessage().getBody().toString()))
                .processError(context -> {})
                .buildProcessorClient()).start();
            var sender = w.keep(clients.sender().queueName("q").buildClient());
            sender.sendMessage(new ServiceBusMessage("before"));
            until("the first message", () -> found.contains("before"));
            broker.kill();
            broker.start();
            sender.sendMessage(new ServiceBusMessage("after"));
            until("the message after the kill", () -> found.contains("after"));
        })));

        // AMQP-91
        all.add(new Scenario("a stopping broker notifies clients and they reconnect", w -> w.own(broker -> {
            var clients = w.clients(broker.connectionString(), 20);
            var sender = w.keep(clients.sender().queueName("q").buildClient());
            sender.sendMessage(new ServiceBusMessage("a"));
            broker.stop();
            broker.start();
            sender.sendMessage(new ServiceBusMessage("b"));
            equal(World.drain(clients, broker, "q"), List.of("a", "b"), "what is there");
        })));

        // SET-21
        all.add(new Scenario("a cut connection is reopened", w -> {
            String queue = w.queue();
            var line = w.line();
            var clients = w.clients(Broker.stringAt(line.address(), Broker.ROOT, w.broker.key), 20);
            var sender = w.keep(clients.sender().queueName(queue).buildClient());
            var receiver = w.receiver(clients, queue, builder -> builder);
            sender.sendMessage(new ServiceBusMessage("one"));
            var locked = one(receiver);
            line.cut();
            sender.sendMessage(new ServiceBusMessage("two"));
            // The lock outlives its connection: the message is settled through the next one.
            receiver.complete(locked);
            equal(bodies(receive(receiver, 1)), List.of("two"), "the messages that are left");
        }));

        // AMQP-79
        all.add(new Scenario("a deleted queue ends its links", w -> {
            String queue = w.queue();
            var sender = w.sender(queue);
            sender.sendMessage(new ServiceBusMessage("x"));
            w.ask("DELETE", "queues/" + queue, null);
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> sender.sendMessage(new ServiceBusMessage("y")));
            w.ask("PUT", "queues/" + queue, "{}");
            sender.sendMessage(new ServiceBusMessage("z"));
            equal(w.drain(queue), List.of("z"), "what is there");
        }));

        // AMQP-02, AMQP-17, AMQP-18
        all.add(new Scenario("messages pass over TLS, also over WebSocket", w -> w.own(broker -> {
            SSLContext before = SSLContext.getDefault();
            // The SDK trusts the authorities of the Java runtime.
            SSLContext.setDefault(broker.trust);
            try {
                byte[] body = "0123456789abcdef!".repeat(50_000).getBytes();
                for (var transport : List.of(AmqpTransportType.AMQP, AmqpTransportType.AMQP_WEB_SOCKETS)) {
                    var clients = w.clients(broker.secureString("amqp")).transportType(transport);
                    if (transport == AmqpTransportType.AMQP_WEB_SOCKETS) {
                        clients.customEndpointAddress("https://localhost:" + broker.port("amqp"));
                    }
                    var sender = w.keep(clients.sender().queueName("q").buildClient());
                    sender.sendMessage(new ServiceBusMessage(body));
                    var receiver = w.receiver(clients, "q", builder -> builder);
                    var message = one(receiver);
                    that(Arrays.equals(message.getBody().toBytes(), body), "the body differs");
                    receiver.complete(message);
                }
            } finally {
                SSLContext.setDefault(before);
            }
            equal(World.counted(broker, "q", "totalMessageCount"), 0, "messages left");
        }, "--tls")));

        // AMQP-07
        all.add(new Scenario("a client is opened and closed often", w -> {
            String queue = w.queue();
            for (int n = 0; n < 10; n += 1) {
                try (var sender = w.clients(w.broker.connectionString()).sender().queueName(queue).buildClient()) {
                    sender.sendMessage(new ServiceBusMessage("x"));
                }
            }
            equal(w.drain(queue).size(), 10, "messages");
        }));
    }

    /** Waits until a hundred more messages are accepted. */
    private static void goOn(Set<String> accepted) throws Exception {
        int goal = accepted.size() + 100;
        until("further messages are accepted", () -> accepted.size() >= goal);
    }
}
