package sdk;

import static sdk.Check.equal;
import static sdk.Check.until;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** The processor clients, which call a function for each message and settle by its outcome. */
final class Processors {
    private Processors() {}

    private static ServiceBusProcessorClient started(World w, ServiceBusProcessorClient processor) {
        w.keep(processor).start();
        return processor;
    }

    static void scenarios(List<Scenario> all) {
        // AMQP-50, AMQP-60
        all.add(new Scenario("a processor gets everything once", w -> {
            String queue = w.queue();
            w.sender(queue).sendMessages(Sending.numbered(200));
            var found = Collections.synchronizedList(new ArrayList<String>());
            var errors = Collections.synchronizedList(new ArrayList<Throwable>());
            var processor = started(w, w.clients().processor().queueName(queue).maxConcurrentCalls(8).prefetchCount(20)
                .processMessage(context -> found.add(context.getMessage().getBody().toString()))
                .processError(context -> errors.add(context.getException()))
                .buildProcessorClient());
            until("all are completed", () -> w.counted(queue, "totalMessageCount") == 0);
            processor.close();
            equal(errors, List.of(), "errors");
            equal(found.size(), 200, "calls");
            equal(new HashSet<>(found).size(), 200, "messages");
        }));

        // AMQP-64
        all.add(new Scenario("a processor that fails abandons its message", w -> {
            String queue = w.queue("{\"maxDeliveryCount\": 3}");
            w.send(queue, "x");
            var calls = new AtomicInteger();
            started(w, w.clients().processor().queueName(queue)
                .processMessage(context -> {
                    calls.incrementAndGet();
                    throw new IllegalStateException("not today");
                })
                .processError(context -> {})
                .buildProcessorClient());
            until("it is dead-lettered", () -> w.counted(queue, "deadLetterMessageCount") == 1);
            equal(calls.get(), 3, "calls");
        }));

        // AMQP-60
        all.add(new Scenario("a processor settles itself", w -> {
            String queue = w.queue();
            w.send(queue, "complete", "dead-letter", "defer");
            started(w, w.clients().processor().queueName(queue).disableAutoComplete()
                .processMessage(context -> {
                    switch (context.getMessage().getBody().toString()) {
                        case "complete" -> context.complete();
                        case "dead-letter" -> context.deadLetter();
                        default -> context.defer();
                    }
                })
                .processError(context -> {})
                .buildProcessorClient());
            until("all are settled", () -> w.counted(queue, "deadLetterMessageCount") == 1
                && w.counted(queue, "totalMessageCount") == 2 && w.counted(queue, "activeMessageCount") == 0);
        }));

        // SET-18
        all.add(new Scenario("a processor holds its lock over several durations", w -> {
            String queue = w.queue("{\"lockDuration\": \"PT3S\"}");
            w.send(queue, "x");
            var calls = new AtomicInteger();
            started(w, w.clients().processor().queueName(queue)
                .processMessage(context -> {
                    calls.incrementAndGet();
                    sleep(7_000);
                })
                .processError(context -> {})
                .buildProcessorClient());
            until("it is completed", () -> w.counted(queue, "totalMessageCount") == 0);
            equal(calls.get(), 1, "calls");
        }));

        // AMQP-73, AMQP-75
        all.add(new Scenario("a session processor keeps each session in order", w -> {
            String queue = w.sessions();
            var messages = new ArrayList<ServiceBusMessage>();
            for (int n = 0; n < 10; n += 1) {
                for (String session : List.of("a", "b", "c")) {
                    messages.add(new ServiceBusMessage(String.valueOf(n)).setSessionId(session));
                }
            }
            w.sender(queue).sendMessages(messages);
            Map<String, List<String>> found = new ConcurrentHashMap<>();
            started(w, w.clients().sessionProcessor().queueName(queue).maxConcurrentSessions(2).maxConcurrentCalls(1)
                .sessionIdleTimeout(Duration.ofSeconds(1))
                .processMessage(context -> found
                    .computeIfAbsent(context.getMessage().getSessionId(), session -> Collections.synchronizedList(new ArrayList<>()))
                    .add(context.getMessage().getBody().toString()))
                .processError(context -> {})
                .buildProcessorClient());
            until("all are completed", () -> w.counted(queue, "totalMessageCount") == 0);
            for (String session : List.of("a", "b", "c")) equal(found.get(session), Sending.numbers(10), session);
        }));

        // TOP-01
        all.add(new Scenario("a processor serves a subscription", w -> {
            String topic = w.topic("s");
            var found = Collections.synchronizedList(new ArrayList<String>());
            started(w, w.clients().processor().topicName(topic).subscriptionName("s")
                .processMessage(context -> found.add(context.getMessage().getBody().toString()))
                .processError(context -> {})
                .buildProcessorClient());
            w.send(topic, "one", "two");
            until("both come", () -> found.equals(List.of("one", "two")));
        }));

        // AMQP-53
        all.add(new Scenario("a processor is stopped and started again", w -> {
            String queue = w.queue();
            var found = Collections.synchronizedList(new ArrayList<String>());
            var processor = started(w, w.clients().processor().queueName(queue)
                .processMessage(context -> found.add(context.getMessage().getBody().toString()))
                .processError(context -> {})
                .buildProcessorClient());
            w.send(queue, "one");
            until("the first comes", () -> found.size() == 1);
            processor.stop();
            w.send(queue, "two");
            processor.start();
            until("the second comes", () -> found.equals(List.of("one", "two")));
        }));
    }

    static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException over) {
            Thread.currentThread().interrupt();
        }
    }
}
