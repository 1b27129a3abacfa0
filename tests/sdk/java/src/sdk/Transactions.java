package sdk;

import static sdk.Check.equal;
import static sdk.Check.refused;
import static sdk.Check.that;
import static sdk.World.bodies;
import static sdk.World.nothing;
import static sdk.World.one;
import static sdk.World.receive;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.OffsetDateTime;
import java.util.List;

/** Transactions: over one entity, and over several through the first. */
final class Transactions {
    private Transactions() {}

    private static ServiceBusClientBuilder crossing(World w) {
        return w.clients(w.broker.connectionString()).enableCrossEntityTransactions();
    }

    private static ServiceBusReceiverClient receiver(World w, ServiceBusClientBuilder clients, String queue) {
        return w.receiver(clients, queue, builder -> builder);
    }

    static void scenarios(List<Scenario> all) {
        // TXN-01, TXN-03, AMQP-95, AMQP-97
        all.add(new Scenario("sends and settlements of a transaction take effect at its commit", w -> {
            String queue = w.queue();
            w.send(queue, "old");
            var sender = w.sender(queue);
            var receiver = w.receiver(queue);
            var old = one(receiver);
            var transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("new 1"), transaction);
            sender.sendMessage(new ServiceBusMessage("new 2"), transaction);
            receiver.complete(old, new CompleteOptions().setTransactionContext(transaction));
            equal(w.counted(queue, "totalMessageCount"), 1, "messages before");
            sender.commitTransaction(transaction);
            equal(bodies(receive(receiver, 2)), List.of("new 1", "new 2"), "what is there");
            equal(w.counted(queue, "totalMessageCount"), 2, "messages");
        }));

        // TXN-01, TXN-04
        all.add(new Scenario("a rolled back transaction has no effect", w -> {
            String queue = w.queue("{\"lockDuration\": \"PT2S\"}");
            w.send(queue, "old");
            var sender = w.sender(queue);
            var receiver = w.receiver(queue);
            var old = one(receiver);
            var transaction = receiver.createTransaction();
            sender.sendMessage(new ServiceBusMessage("new"), transaction);
            receiver.complete(old, new CompleteOptions().setTransactionContext(transaction));
            receiver.rollbackTransaction(transaction);
            equal(w.counted(queue, "totalMessageCount"), 1, "messages");
            // The lock is still held, but this SDK settles a message once; the message returns when
            // the lock ends.
            refused(RuntimeException.class, () -> receiver.complete(old));
            equal(one(w.receiver(queue)).getDeliveryCount(), 1L, "deliveries");
        }));

        // TXN-02
        all.add(new Scenario("a transaction has every settlement", w -> {
            String queue = w.queue();
            w.send(queue, "complete", "abandon", "defer", "dead-letter");
            var receiver = w.receiver(queue);
            var messages = receive(receiver, 4);
            var transaction = receiver.createTransaction();
            receiver.complete(messages.get(0), new CompleteOptions().setTransactionContext(transaction));
            receiver.abandon(messages.get(1), new AbandonOptions().setTransactionContext(transaction));
            receiver.defer(messages.get(2), new DeferOptions().setTransactionContext(transaction));
            receiver.deadLetter(messages.get(3), new DeadLetterOptions().setDeadLetterReason("r").setTransactionContext(transaction));
            nothing(receiver);
            receiver.commitTransaction(transaction);
            var again = one(receiver);
            equal(again.getBody().toString(), "abandon", "what comes again");
            equal(again.getDeliveryCount(), 1L, "deliveries");
            equal(w.counted(queue, "deadLetterMessageCount"), 1, "dead letters");
            equal(w.counted(queue, "totalMessageCount"), 3, "messages");
        }));

        // TXN-02, SCH-13
        all.add(new Scenario("a transaction schedules", w -> {
            String queue = w.queue();
            var sender = w.sender(queue);
            var later = OffsetDateTime.now().plusHours(1);
            var undone = sender.createTransaction();
            sender.scheduleMessage(new ServiceBusMessage("x"), later, undone);
            sender.rollbackTransaction(undone);
            var done = sender.createTransaction();
            sender.scheduleMessage(new ServiceBusMessage("y"), later, done);
            equal(w.counted(queue, "scheduledMessageCount"), 0, "scheduled before");
            sender.commitTransaction(done);
            equal(w.counted(queue, "scheduledMessageCount"), 1, "scheduled");
        }));

        // TXN-13, AMQP-42
        all.add(new Scenario("a transaction sends a batch", w -> {
            String queue = w.queue();
            var sender = w.sender(queue);
            var batch = sender.createMessageBatch();
            Sending.numbered(5).forEach(batch::tryAddMessage);
            var transaction = sender.createTransaction();
            sender.sendMessages(batch, transaction);
            equal(w.counted(queue, "totalMessageCount"), 0, "messages before");
            sender.commitTransaction(transaction);
            var messages = receive(w.receiver(queue), 5);
            equal(bodies(messages), Sending.numbers(5), "bodies");
            equal(messages.get(4).getSequenceNumber() - messages.get(0).getSequenceNumber(), 4L, "numbers between");
        }));

        // TXN-14
        all.add(new Scenario("a dead letter is completed with its corrected copy", w -> {
            String queue = w.queue();
            w.send(queue, "wrong");
            var receiver = w.receiver(queue);
            receiver.deadLetter(one(receiver));
            var dead = w.receiver(queue, it -> it.subQueue(SubQueue.DEAD_LETTER_QUEUE));
            var sender = w.sender(queue);
            var letter = one(dead);
            var transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("right"), transaction);
            dead.complete(letter, new CompleteOptions().setTransactionContext(transaction));
            sender.commitTransaction(transaction);
            equal(w.counted(queue, "deadLetterMessageCount"), 0, "dead letters");
            equal(w.drain(queue), List.of("right"), "what is there");
        }));

        // TXN-08, AMQP-98
        all.add(new Scenario("a transaction stays at its entity", w -> {
            String queue = w.queue();
            String other = w.queue();
            w.send(other, "x");
            var sender = w.sender(queue);
            var receiver = w.receiver(other);
            var message = one(receiver);
            var transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("new"), transaction);
            refused(RuntimeException.class,
                () -> receiver.complete(message, new CompleteOptions().setTransactionContext(transaction)));
            sender.rollbackTransaction(transaction);
            equal(w.counted(other, "totalMessageCount"), 1, "messages");
        }));

        // AMQP-100
        all.add(new Scenario("a send that is refused dooms its transaction", w -> {
            String queue = w.sessions();
            var sender = w.sender(queue);
            var transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("good").setSessionId("a"), transaction);
            try {
                sender.sendMessage(new ServiceBusMessage("without a session"), transaction);
            } catch (RuntimeException told) {
                // This version may report it; others take any answer for success.
            }
            refused(RuntimeException.class, () -> sender.commitTransaction(transaction));
            equal(w.counted(queue, "totalMessageCount"), 0, "messages");
        }));

        // TXN-09, AMQP-98
        all.add(new Scenario("a transaction crosses from one entity to others", w -> {
            String from = w.queue();
            String to = w.queue();
            w.send(from, "order");
            var clients = crossing(w);
            var receiver = receiver(w, clients, from);
            var order = one(receiver);
            var sender = w.keep(clients.sender().queueName(to).buildClient());
            var transaction = receiver.createTransaction();
            receiver.complete(order, new CompleteOptions().setTransactionContext(transaction));
            sender.sendMessage(new ServiceBusMessage("parcel"), transaction);
            equal(w.counted(to, "totalMessageCount"), 0, "messages before");
            receiver.commitTransaction(transaction);
            equal(one(w.receiver(to)).getBody().toString(), "parcel", "body");
            equal(w.counted(from, "totalMessageCount"), 0, "messages left");
        }));

        // TXN-09, TXN-04
        all.add(new Scenario("a transaction that crosses is rolled back everywhere", w -> {
            String from = w.queue("{\"lockDuration\": \"PT2S\"}");
            String to = w.queue();
            w.send(from, "order");
            var clients = crossing(w);
            var receiver = receiver(w, clients, from);
            var order = one(receiver);
            var sender = w.keep(clients.sender().queueName(to).buildClient());
            var transaction = receiver.createTransaction();
            receiver.complete(order, new CompleteOptions().setTransactionContext(transaction));
            sender.sendMessage(new ServiceBusMessage("parcel"), transaction);
            receiver.rollbackTransaction(transaction);
            equal(one(w.receiver(from)).getBody().toString(), "order", "body");
            equal(w.counted(to, "totalMessageCount"), 0, "messages");
        }));

        // TXN-09
        all.add(new Scenario("a client across entities receives from its first entity only", w -> {
            String via = w.queue();
            String other = w.queue();
            w.send(via, "a");
            w.send(other, "b");
            var clients = crossing(w);
            var first = receiver(w, clients, via);
            var message = one(first);
            var second = receiver(w, clients, other);
            refused(RuntimeException.class, () -> one(second));
            var transaction = first.createTransaction();
            first.complete(message, new CompleteOptions().setTransactionContext(transaction));
            first.commitTransaction(transaction);
            equal(w.counted(via, "totalMessageCount"), 0, "messages");
            equal(w.counted(other, "totalMessageCount"), 1, "messages");
        }));

        // TXN-12
        all.add(new Scenario("a transaction ends with its connection", w -> {
            String queue = w.queue();
            var line = w.line();
            // With one retry, because the SDK waits for the pending operation in each of its
            // attempts.
            var clients = w.clients(Broker.stringAt(line.address(), Broker.ROOT, w.broker.key), 1);
            var sender = w.keep(clients.sender().queueName(queue).buildClient());
            var transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("x"), transaction);
            line.cut();
            var error = refused(RuntimeException.class, () -> sender.commitTransaction(transaction));
            that(error.getMessage() != null, "it says nothing");
            equal(w.counted(queue, "totalMessageCount"), 0, "messages");
            // The client continues with another transaction.
            var next = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("y"), next);
            sender.commitTransaction(next);
            equal(w.counted(queue, "totalMessageCount"), 1, "messages");
        }));

        // TXN-15
        all.add(new Scenario("committed messages are there after a kill", w -> w.own(broker -> {
            var clients = w.clients(broker.connectionString(), 20);
            var sender = w.keep(clients.sender().queueName("q").buildClient());
            var committed = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("1"), committed);
            sender.sendMessage(new ServiceBusMessage("2"), committed);
            sender.commitTransaction(committed);
            var open = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("3"), open);
            broker.kill();
            broker.start();
            equal(World.drain(clients, broker, "q"), List.of("1", "2"), "what is there");
        })));
    }
}
