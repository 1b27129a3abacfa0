using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;

namespace Peeklock.Sdk
{
    /// <summary>Both receive modes, settlement, locks, peeking, dead-letter queues.</summary>
    static class Receiving
    {
        public static void Add(Scenarios all)
        {
            // RCV-01, AMQP-60
            all.Add("receive and delete removes messages immediately", async world =>
            {
                var queue = await world.Queue();
                await world.Send(queue, "1", "2", "3");
                var options = new ServiceBusReceiverOptions { ReceiveMode = ServiceBusReceiveMode.ReceiveAndDelete };
                var came = await World.Receive(world.Client.CreateReceiver(queue, options), 3);
                Check.Same(came.Select(one => one.Body.ToString()), new[] { "1", "2", "3" }, "bodies");
                Check.Equal(await world.Active(queue), 0, "messages left");
            });

            // SET-03, AMQP-63
            all.Add("an abandoned message returns with its changed properties", async world =>
            {
                var queue = await world.Queue();
                await world.Send(queue, "order");
                var receiver = world.Client.CreateReceiver(queue);
                var message = await World.One(receiver);
                await receiver.AbandonMessageAsync(message, new Dictionary<string, object> { ["reason"] = "busy" });
                message = await World.One(receiver);
                Check.Equal(message.DeliveryCount, 2, "delivery count");
                Check.Equal(message.ApplicationProperties["reason"], "busy", "property");
                await receiver.CompleteMessageAsync(message);
            });

            // DLQ-07, AMQP-62
            all.Add("a dead-lettered message has its reason", async world =>
            {
                var queue = await world.Queue();
                await world.Send(queue, "order");
                var receiver = world.Client.CreateReceiver(queue);
                await receiver.DeadLetterMessageAsync(await World.One(receiver), "cold", "the tea is cold");
                var options = new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter };
                var dead = world.Client.CreateReceiver(queue, options);
                var message = await World.One(dead);
                Check.Equal(message.DeadLetterReason, "cold", "reason");
                Check.Equal(message.DeadLetterErrorDescription, "the tea is cold", "description");
                await dead.CompleteMessageAsync(message);
            });

            // DLQ-18
            all.Add("the last allowed delivery dead-letters", async world =>
            {
                var queue = await world.Queue(options => options.MaxDeliveryCount = 2);
                await world.Send(queue, "order");
                var receiver = world.Client.CreateReceiver(queue);
                await receiver.AbandonMessageAsync(await World.One(receiver));
                await receiver.AbandonMessageAsync(await World.One(receiver));
                var dead = world.Client.CreateReceiver(queue, new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });
                Check.Equal((await World.One(dead)).DeadLetterReason, "MaxDeliveryCountExceeded", "reason");
            });

            // SCH-20, AMQP-81
            all.Add("a deferred message is received by its number", async world =>
            {
                var queue = await world.Queue();
                await world.Send(queue, "order");
                var receiver = world.Client.CreateReceiver(queue);
                var message = await World.One(receiver);
                await receiver.DeferMessageAsync(message);
                await World.Empty(receiver, "a deferred message");
                var deferred = await receiver.ReceiveDeferredMessageAsync(message.SequenceNumber);
                Check.Equal(deferred.State, ServiceBusMessageState.Deferred, "state");
                await receiver.CompleteMessageAsync(deferred);
                await Check.Refused(
                    ServiceBusFailureReason.MessageNotFound,
                    () => receiver.ReceiveDeferredMessageAsync(message.SequenceNumber), "a settled message");
            });

            // AMQP-83
            all.Add("a peek shows messages and removes none", async world =>
            {
                var queue = await world.Queue();
                await world.Send(queue, "1", "2", "3");
                var receiver = world.Client.CreateReceiver(queue);
                var peeked = await receiver.PeekMessagesAsync(2);
                peeked = peeked.Concat(await receiver.PeekMessagesAsync(2)).ToList();
                Check.Same(peeked.Select(one => one.Body.ToString()), new[] { "1", "2", "3" }, "peeked");
                var from = await receiver.PeekMessagesAsync(5, peeked[1].SequenceNumber);
                Check.Same(from.Select(one => one.Body.ToString()), new[] { "2", "3" }, "peeked from a number");
                Check.Equal(await world.Active(queue), 3, "messages left");
            });

            // SET-18, AMQP-82
            all.Add("a renewed lock lasts longer", async world =>
            {
                var queue = await world.Queue(options => options.LockDuration = TimeSpan.FromSeconds(5));
                await world.Send(queue, "order");
                var receiver = world.Client.CreateReceiver(queue);
                var message = await World.One(receiver);
                var before = message.LockedUntil;
                await Task.Delay(1000);
                await receiver.RenewMessageLockAsync(message);
                Check.That(message.LockedUntil > before, $"{message.LockedUntil:o} is after {before:o}");
                await receiver.CompleteMessageAsync(message);
            });

            // SET-20, ERR-04
            all.Add("a message whose lock has ended cannot be settled", async world =>
            {
                var queue = await world.Queue(options => options.LockDuration = TimeSpan.FromSeconds(1));
                await world.Send(queue, "order");
                var receiver = world.Client.CreateReceiver(queue);
                var message = await World.One(receiver);
                await Task.Delay(1500);
                await Check.Refused(
                    ServiceBusFailureReason.MessageLockLost, () => receiver.CompleteMessageAsync(message), "a lock that has ended");
                Check.Equal((await World.One(receiver)).DeliveryCount, 2, "delivery count");
            });

            // RCV-16
            all.Add("a receiver with prefetch gets all messages in their order", async world =>
            {
                var queue = await world.Queue();
                await world.Send(queue, Enumerable.Range(0, 50).Select(n => n.ToString()).ToArray());
                var receiver = world.Client.CreateReceiver(queue, new ServiceBusReceiverOptions { PrefetchCount = 20 });
                var found = new List<string>();
                while (found.Count < 50)
                {
                    var message = await World.One(receiver);
                    found.Add(message.Body.ToString());
                    await receiver.CompleteMessageAsync(message);
                }
                Check.Same(found, Enumerable.Range(0, 50).Select(n => n.ToString()), "order");
            });

            // EXP-22
            all.Add("an expired message is dead-lettered if configured", async world =>
            {
                var queue = await world.Queue(options => options.DeadLetteringOnMessageExpiration = true);
                await world.Client.CreateSender(queue).SendMessageAsync(
                    new ServiceBusMessage("order") { TimeToLive = TimeSpan.FromSeconds(1) });
                await Task.Delay(1200);
                // Messages expire only while a receiver is active.
                await World.Empty(world.Client.CreateReceiver(queue), "an expired message");
                var dead = world.Client.CreateReceiver(queue, new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });
                Check.Equal((await World.One(dead)).DeadLetterReason, "TTLExpiredException", "reason");
            });

            // AMQP-36
            all.Add("an entity that does not exist is reported as such", async world =>
            {
                await Check.Refused(
                    ServiceBusFailureReason.MessagingEntityNotFound,
                    () => world.Client.CreateReceiver("nowhere").ReceiveMessageAsync(TimeSpan.FromSeconds(2)), "receive");
                await Check.Refused(
                    ServiceBusFailureReason.MessagingEntityNotFound,
                    () => world.Client.CreateSender("nowhere").SendMessageAsync(new ServiceBusMessage("lost")), "send");
            });
        }
    }
}
