using System;
using System.IO;
using System.Threading.Tasks;
using Azure;
using Azure.Messaging.ServiceBus;

namespace Peeklock.Sdk
{
    /// <summary>Credentials, WebSocket, a broker that is killed.</summary>
    static class Connections
    {
        public static string Program { get; set; }

        public static string Place { get; set; }

        public static void Add(Scenarios all)
        {
            // SEC-21
            all.Add("a wrong key is refused", async world =>
            {
                var client = world.New(null, world.Messaging(World.Root, Convert.ToBase64String(new byte[32])));
                await Check.Thrown<UnauthorizedAccessException>(
                    () => client.CreateSender("any").SendMessageAsync(new ServiceBusMessage("lost")), "a wrong key");
            });

            // AMQP-02
            all.Add("AMQP over WebSocket works", async world =>
            {
                var queue = await world.Queue();
                var client = world.New(options => options.TransportType = ServiceBusTransportType.AmqpWebSockets);
                await client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage("order"));
                var receiver = client.CreateReceiver(queue);
                var message = await World.One(receiver);
                await receiver.CompleteMessageAsync(message);
                Check.Equal(await world.Active(queue), 0, "messages left");
            });

            // SND-29, SET-21
            all.Add("acknowledged messages survive a kill, and clients continue afterwards", async world =>
            {
                using (var broker = new Broker(Program, Path.Combine(Place, World.Name("killed"))))
                {
                    var own = new World(broker);
                    var queue = await own.Queue();
                    var receiver = own.Client.CreateReceiver(queue);
                    await own.Send(queue, "1", "2");
                    var first = await World.One(receiver);
                    await receiver.CompleteMessageAsync(first);
                    broker.Kill();
                    broker.Start();
                    await own.Send(queue, "3");
                    var came = await World.Receive(receiver, 2);
                    Check.Same(new[] { came[0].Body.ToString(), came[1].Body.ToString() }, new[] { "2", "3" }, "bodies");
                    Check.That(!broker.Log.Contains("panicked"), broker.Log);
                    await own.Close();
                }
            });
        }
    }
}
