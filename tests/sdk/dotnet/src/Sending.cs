using System;
using System.Collections.Generic;
using System.Linq;
using Azure.Core.Amqp;
using Azure.Messaging.ServiceBus;

namespace Peeklock.Sdk
{
    /// <summary>Bodies, properties, batches, schedules.</summary>
    static class Sending
    {
        public static void Add(Scenarios all)
        {
            // AMQP-40, AMQP-41
            all.Add("a message arrives as sent", async world =>
            {
                var queue = await world.Queue();
                await world.Send(queue, "two coffees");
                var receiver = world.Client.CreateReceiver(queue);
                var message = await World.One(receiver);
                Check.Equal(message.Body.ToString(), "two coffees", "body");
                Check.Equal(message.DeliveryCount, 1, "delivery count");
                await receiver.CompleteMessageAsync(message);
                Check.Equal(await world.Active(queue), 0, "messages left");
            });

            // AMQP-44, AMQP-45
            all.Add("broker properties are kept", async world =>
            {
                var queue = await world.Queue();
                await world.Client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage(new byte[] { 0, 1, 255 })
                {
                    MessageId = "order-1",
                    CorrelationId = "c-1",
                    Subject = "tea",
                    To = "kitchen",
                    ReplyTo = "waiter",
                    ReplyToSessionId = "table-7",
                    ContentType = "application/octet-stream",
                    PartitionKey = "p",
                    TimeToLive = TimeSpan.FromMinutes(10),
                });
                var message = await World.One(world.Client.CreateReceiver(queue));
                Check.Same(message.Body.ToArray(), new byte[] { 0, 1, 255 }, "body");
                Check.Same(
                    new[] { message.MessageId, message.CorrelationId, message.Subject, message.To, message.ReplyTo },
                    new[] { "order-1", "c-1", "tea", "kitchen", "waiter" }, "properties");
                Check.Same(
                    new[] { message.ReplyToSessionId, message.ContentType, message.PartitionKey },
                    new[] { "table-7", "application/octet-stream", "p" }, "further properties");
                Check.Equal(message.TimeToLive, TimeSpan.FromMinutes(10), "time to live");
                var difference = message.ExpiresAt - message.EnqueuedTime - message.TimeToLive;
                Check.That(difference.Duration() < TimeSpan.FromSeconds(5), $"the expiry differs by {difference}");
            });

            // AMQP-47
            all.Add("application properties keep their types", async world =>
            {
                var queue = await world.Queue();
                var sent = new Dictionary<string, object>
                {
                    ["text"] = "tea", ["true"] = true, ["byte"] = (byte)7, ["sbyte"] = (sbyte)-7, ["short"] = (short)-300,
                    ["ushort"] = (ushort)300, ["int"] = -70000, ["uint"] = 70000u, ["long"] = -5000000000L, ["ulong"] = 5000000000UL,
                    ["float"] = 1.5f, ["double"] = 2.5, ["decimal"] = 3.5m, ["char"] = 'x', ["guid"] = Guid.NewGuid(),
                    ["uri"] = new Uri("https://example.com/a"), ["time"] = new DateTime(2030, 1, 2, 3, 4, 5, DateTimeKind.Utc),
                    ["offset"] = new DateTimeOffset(2030, 1, 2, 3, 4, 5, TimeSpan.Zero), ["span"] = TimeSpan.FromSeconds(90),
                };
                var message = new ServiceBusMessage("typed");
                foreach (var property in sent)
                {
                    message.ApplicationProperties.Add(property);
                }
                await world.Client.CreateSender(queue).SendMessageAsync(message);
                var came = await World.One(world.Client.CreateReceiver(queue));
                foreach (var property in sent)
                {
                    Check.Equal(came.ApplicationProperties[property.Key], property.Value, property.Key);
                    Check.Equal(came.ApplicationProperties[property.Key].GetType(), property.Value.GetType(), $"type of {property.Key}");
                }
            });

            // AMQP-41
            all.Add("bodies of sequences and values arrive as sent", async world =>
            {
                var queue = await world.Queue();
                var sender = world.Client.CreateSender(queue);
                var list = new List<IList<object>> { new List<object> { "a", 1 }, new List<object> { 2.5 } };
                foreach (var body in new[] { AmqpMessageBody.FromSequence(list), AmqpMessageBody.FromValue("value") })
                {
                    await sender.SendMessageAsync(new ServiceBusMessage(new AmqpAnnotatedMessage(body)));
                }
                var came = await World.Receive(world.Client.CreateReceiver(queue), 2);
                IEnumerable<IList<object>> sequence;
                Check.That(came[0].GetRawAmqpMessage().Body.TryGetSequence(out sequence), "the first has a sequence");
                Check.Same(sequence.SelectMany(part => part), new object[] { "a", 1, 2.5 }, "sequence");
                object value;
                Check.That(came[1].GetRawAmqpMessage().Body.TryGetValue(out value), "the second has a value");
                Check.Equal(value, "value", "value");
            });

            // SND-29, AMQP-43
            all.Add("a batch arrives in order", async world =>
            {
                var queue = await world.Queue();
                var sender = world.Client.CreateSender(queue);
                using (var batch = await sender.CreateMessageBatchAsync())
                {
                    for (var number = 0; number < 100; number++)
                    {
                        Check.That(batch.TryAddMessage(new ServiceBusMessage(number.ToString())), $"message {number} fits");
                    }
                    await sender.SendMessagesAsync(batch);
                }
                var came = await World.Receive(world.Client.CreateReceiver(queue), 100);
                Check.Same(came.Select(one => one.Body.ToString()), Enumerable.Range(0, 100).Select(n => n.ToString()), "order");
            });

            // AMQP-42
            all.Add("a message that is too large is refused", async world =>
            {
                var queue = await world.Queue();
                var sender = world.Client.CreateSender(queue);
                var message = new ServiceBusMessage(new byte[2 * 1024 * 1024]);
                await Check.Refused(ServiceBusFailureReason.MessageSizeExceeded, () => sender.SendMessageAsync(message), "2 MiB");
                await sender.SendMessageAsync(new ServiceBusMessage("small"));
                Check.Equal(await world.Active(queue), 1, "messages");
            });

            // AMQP-80, SCH-01, SCH-04
            all.Add("scheduled messages arrive at their time, unless cancelled", async world =>
            {
                var queue = await world.Queue();
                var sender = world.Client.CreateSender(queue);
                var soon = DateTimeOffset.UtcNow.AddSeconds(2);
                var numbers = await sender.ScheduleMessagesAsync(
                    new[] { new ServiceBusMessage("comes"), new ServiceBusMessage("cancelled") }, soon);
                Check.That(numbers[0] > 0 && numbers[1] > numbers[0], "sequence numbers grow");
                await sender.CancelScheduledMessageAsync(numbers[1]);
                var receiver = world.Client.CreateReceiver(queue);
                var message = await World.One(receiver);
                Check.Equal(message.Body.ToString(), "comes", "body");
                Check.That(message.EnqueuedTime >= soon.AddMilliseconds(-50), $"{message.EnqueuedTime:o} is not before {soon:o}");
                await receiver.CompleteMessageAsync(message);
                await World.Empty(receiver, "after the schedule");
            });

            // DUP-02
            all.Add("a duplicate is dropped", async world =>
            {
                var queue = await world.Queue(options => options.RequiresDuplicateDetection = true);
                var sender = world.Client.CreateSender(queue);
                for (var time = 0; time < 3; time++)
                {
                    await sender.SendMessageAsync(new ServiceBusMessage("order") { MessageId = "1" });
                }
                Check.Equal(await world.Active(queue), 1, "messages");
            });
        }
    }
}
