using System;
using System.Linq;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;

namespace Peeklock.Sdk
{
    static class Sessions
    {
        static ServiceBusMessage In(string session, string body)
        {
            return new ServiceBusMessage(body) { SessionId = session };
        }

        public static void Add(Scenarios all)
        {
            // SES-01, AMQP-70
            all.Add("a session has only its messages, in their order", async world =>
            {
                var queue = await world.SessionQueue();
                var sender = world.Client.CreateSender(queue);
                await sender.SendMessagesAsync(new[] { In("a", "1"), In("b", "x"), In("a", "2"), In("a", "3") });
                var session = await world.Client.AcceptSessionAsync(queue, "a");
                var came = await World.Receive(session, 3);
                Check.Same(came.Select(one => one.Body.ToString()), new[] { "1", "2", "3" }, "bodies");
                foreach (var message in came)
                {
                    await session.CompleteMessageAsync(message);
                }
                await World.Empty(session, "a session without messages");
            });

            // SES-08
            all.Add("the next session is one without a receiver", async world =>
            {
                var queue = await world.SessionQueue();
                await world.Client.CreateSender(queue).SendMessagesAsync(new[] { In("a", "1"), In("b", "2") });
                var one = await world.Client.AcceptNextSessionAsync(queue);
                var other = await world.Client.AcceptNextSessionAsync(queue);
                Check.Same(new[] { one.SessionId, other.SessionId }.OrderBy(id => id), new[] { "a", "b" }, "sessions");
            });

            // SES-10
            all.Add("a session of another receiver is refused", async world =>
            {
                var queue = await world.SessionQueue();
                await world.Client.AcceptSessionAsync(queue, "a");
                var other = world.New(options => options.RetryOptions.MaxRetries = 0);
                await Check.Refused(
                    ServiceBusFailureReason.SessionCannotBeLocked, () => other.AcceptSessionAsync(queue, "a"), "a locked session");
            });

            // SES-20, AMQP-84
            all.Add("a session keeps its state", async world =>
            {
                var queue = await world.SessionQueue();
                var session = await world.Client.AcceptSessionAsync(queue, "a");
                Check.That(await session.GetSessionStateAsync() == null, "a new session has no state");
                await session.SetSessionStateAsync(new BinaryData("half done"));
                await session.CloseAsync();
                session = await world.Client.AcceptSessionAsync(queue, "a");
                Check.Equal((await session.GetSessionStateAsync()).ToString(), "half done", "state");
                await session.SetSessionStateAsync(null);
                Check.That(await session.GetSessionStateAsync() == null, "the state was deleted");
            });

            // SES-15
            all.Add("the lock of a session is renewed", async world =>
            {
                var queue = await world.SessionQueue();
                var session = await world.Client.AcceptSessionAsync(queue, "a");
                var before = session.SessionLockedUntil;
                await Task.Delay(1000);
                await session.RenewSessionLockAsync();
                Check.That(session.SessionLockedUntil > before, $"{session.SessionLockedUntil:o} is after {before:o}");
            });

            // SES-09
            all.Add("waiting for an absent next session ends", async world =>
            {
                var queue = await world.SessionQueue();
                var client = world.New(options =>
                {
                    options.RetryOptions.TryTimeout = TimeSpan.FromSeconds(2);
                    options.RetryOptions.MaxRetries = 0;
                });
                await Check.Refused(
                    ServiceBusFailureReason.ServiceTimeout, () => client.AcceptNextSessionAsync(queue), "no session");
            });

            // SES-03
            all.Add("a message without a session is refused where sessions are required", async world =>
            {
                var queue = await world.SessionQueue();
                var sender = world.Client.CreateSender(queue);
                await Check.Thrown<InvalidOperationException>(
                    () => sender.SendMessageAsync(new ServiceBusMessage("order")), "no session id");
            });
        }
    }
}
