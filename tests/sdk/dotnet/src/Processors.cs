using System;
using System.Collections.Concurrent;
using System.Linq;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;

namespace Peeklock.Sdk
{
    static class Processors
    {
        static readonly TimeSpan HandledMax = TimeSpan.FromSeconds(30);

        public static void Add(Scenarios all)
        {
            // RCV-16, AMQP-60
            all.Add("a processor handles each message once", async world =>
            {
                var queue = await world.Queue();
                await world.Send(queue, Enumerable.Range(0, 60).Select(n => n.ToString()).ToArray());
                var handled = new ConcurrentQueue<string>();
                var errors = new ConcurrentQueue<Exception>();
                var done = new TaskCompletionSource<bool>();
                var processor = world.Client.CreateProcessor(queue, new ServiceBusProcessorOptions { MaxConcurrentCalls = 8 });
                processor.ProcessMessageAsync += message =>
                {
                    handled.Enqueue(message.Message.Body.ToString());
                    if (handled.Count == 60)
                    {
                        done.TrySetResult(true);
                    }
                    return Task.CompletedTask;
                };
                processor.ProcessErrorAsync += error => Note(errors, error);
                await Handle(processor, done.Task);
                Check.That(errors.IsEmpty, $"errors: {errors.FirstOrDefault()}");
                Check.Equal(handled.Distinct().Count(), 60, "messages");
                Check.Equal(handled.Count, 60, "deliveries");
                Check.Equal(await world.Active(queue), 0, "messages left");
            });

            // SET-03
            all.Add("a handler that throws abandons its message", async world =>
            {
                var queue = await world.Queue(options => options.MaxDeliveryCount = 3);
                await world.Send(queue, "order");
                var dead = world.Client.CreateReceiver(queue, new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });
                var errors = new ConcurrentQueue<Exception>();
                var done = new TaskCompletionSource<bool>();
                var processor = world.Client.CreateProcessor(queue);
                processor.ProcessMessageAsync += message => throw new Failed("the handler fails");
                processor.ProcessErrorAsync += error =>
                {
                    if (errors.Count == 2)
                    {
                        done.TrySetResult(true);
                    }
                    return Note(errors, error);
                };
                await Handle(processor, done.Task);
                Check.Equal((await World.One(dead)).DeadLetterReason, "MaxDeliveryCountExceeded", "reason");
                Check.Same(errors.Select(error => error.Message), Enumerable.Repeat("the handler fails", 3), "errors");
            });

            // SET-18
            all.Add("a processor renews the lock of a message", async world =>
            {
                var queue = await world.Queue(options => options.LockDuration = TimeSpan.FromSeconds(2));
                await world.Send(queue, "order");
                var deliveries = 0;
                var done = new TaskCompletionSource<bool>();
                var processor = world.Client.CreateProcessor(queue);
                processor.ProcessMessageAsync += async message =>
                {
                    deliveries++;
                    await Task.Delay(5000);
                    await message.CompleteMessageAsync(message.Message);
                    done.TrySetResult(true);
                };
                processor.ProcessErrorAsync += error =>
                {
                    done.TrySetException(error.Exception);
                    return Task.CompletedTask;
                };
                await Handle(processor, done.Task);
                Check.Equal(deliveries, 1, "deliveries");
                Check.Equal(await world.Active(queue), 0, "messages left");
            });

            // SES-01
            all.Add("a session processor handles sessions at the same time, each in its order", async world =>
            {
                var queue = await world.SessionQueue();
                var sessions = new[] { "a", "b", "c", "d" };
                var sent = sessions.SelectMany(
                    session => Enumerable.Range(0, 10).Select(n => new ServiceBusMessage(n.ToString()) { SessionId = session }));
                await world.Client.CreateSender(queue).SendMessagesAsync(sent);
                var handled = new ConcurrentQueue<Tuple<string, string>>();
                var errors = new ConcurrentQueue<Exception>();
                var done = new TaskCompletionSource<bool>();
                var options = new ServiceBusSessionProcessorOptions { MaxConcurrentSessions = 2, SessionIdleTimeout = TimeSpan.FromSeconds(1) };
                var processor = world.Client.CreateSessionProcessor(queue, options);
                processor.ProcessMessageAsync += message =>
                {
                    handled.Enqueue(Tuple.Create(message.SessionId, message.Message.Body.ToString()));
                    if (handled.Count == 40)
                    {
                        done.TrySetResult(true);
                    }
                    return Task.CompletedTask;
                };
                processor.ProcessErrorAsync += error => Note(errors, error);
                await processor.StartProcessingAsync();
                var first = await Task.WhenAny(done.Task, Task.Delay(HandledMax));
                await processor.CloseAsync();
                Check.That(first == done.Task, $"{handled.Count} of 40 messages were handled; {errors.FirstOrDefault()}");
                foreach (var session in sessions)
                {
                    var bodies = handled.Where(one => one.Item1 == session).Select(one => one.Item2);
                    Check.Same(bodies, Enumerable.Range(0, 10).Select(n => n.ToString()), $"session {session}");
                }
            });
        }

        static Task Note(ConcurrentQueue<Exception> errors, ProcessErrorEventArgs error)
        {
            errors.Enqueue(error.Exception);
            return Task.CompletedTask;
        }

        /// <summary>Runs a processor until the task is done.</summary>
        static async Task Handle(ServiceBusProcessor processor, Task done)
        {
            await processor.StartProcessingAsync();
            var first = await Task.WhenAny(done, Task.Delay(HandledMax));
            await processor.CloseAsync();
            Check.That(first == done, "not all messages were handled");
            await done;
        }
    }
}
