using System;
using System.Linq;
using System.Threading.Tasks;
using System.Transactions;
using Azure.Messaging.ServiceBus;

namespace Peeklock.Sdk
{
    static class Transactions
    {
        static TransactionScope Scope()
        {
            return new TransactionScope(TransactionScopeAsyncFlowOption.Enabled);
        }

        public static void Add(Scenarios all)
        {
            // TXN-01, AMQP-90
            all.Add("a committed transaction sends and settles together", async world =>
            {
                var queue = await world.Queue();
                await world.Send(queue, "order");
                var receiver = world.Client.CreateReceiver(queue);
                var message = await World.One(receiver);
                using (var scope = Scope())
                {
                    await world.Client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage("bill"));
                    await receiver.CompleteMessageAsync(message);
                    scope.Complete();
                }
                Check.Equal((await World.One(receiver)).Body.ToString(), "bill", "body");
                Check.Equal(await world.Active(queue), 1, "messages");
            });

            // TXN-04, AMQP-66
            all.Add("a message of a transaction that was rolled back can be settled again", async world =>
            {
                var queue = await world.Queue();
                await world.Send(queue, "order");
                var receiver = world.Client.CreateReceiver(queue);
                var message = await World.One(receiver);
                using (Scope())
                {
                    await world.Client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage("bill"));
                    await receiver.CompleteMessageAsync(message);
                }
                // The SDK rolls back after the scope has ended.
                for (var time = 0; time < 50 && await Settles(receiver, message) == false; time++)
                {
                    await Task.Delay(100);
                }
                Check.Equal(await world.Active(queue), 0, "messages");
            });

            // TXN-09, AMQP-98
            all.Add("a transaction over two queues can send first", async world =>
            {
                var source = await world.Queue();
                var target = await world.Queue();
                await world.Send(source, "order");
                var client = world.New(options => options.EnableCrossEntityTransactions = true);
                var receiver = client.CreateReceiver(source);
                var sender = client.CreateSender(target);
                var message = await World.One(receiver);
                using (var scope = Scope())
                {
                    await sender.SendMessageAsync(new ServiceBusMessage("bill"));
                    await receiver.CompleteMessageAsync(message);
                    scope.Complete();
                }
                Check.Equal((await World.One(world.Client.CreateReceiver(target))).Body.ToString(), "bill", "body");
                Check.Equal(await world.Active(source), 0, "messages at the source");
            });

            // TXN-02
            all.Add("a session state that is set in a transaction takes effect with it", async world =>
            {
                var queue = await world.SessionQueue();
                await world.Client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage("order") { SessionId = "a" });
                var session = await world.Client.AcceptSessionAsync(queue, "a");
                var message = await World.One(session);
                using (var scope = Scope())
                {
                    await session.SetSessionStateAsync(new BinaryData("done"));
                    await session.CompleteMessageAsync(message);
                    scope.Complete();
                }
                Check.Equal((await session.GetSessionStateAsync()).ToString(), "done", "state");
                Check.Equal(await world.Active(queue), 0, "messages");
            });
        }

        static async Task<bool> Settles(ServiceBusReceiver receiver, ServiceBusReceivedMessage message)
        {
            try
            {
                await receiver.CompleteMessageAsync(message);
                return true;
            }
            catch (InvalidOperationException)
            {
                return false;
            }
        }
    }
}
