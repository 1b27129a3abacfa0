using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace Peeklock.Sdk
{
    /// <summary>Entities and clients of one scenario.</summary>
    sealed class World
    {
        public const string Root = "RootManageSharedAccessKey";
        static readonly TimeSpan ReceiveMax = TimeSpan.FromSeconds(20);
        static int count;
        readonly List<ServiceBusClient> clients = new List<ServiceBusClient>();
        ServiceBusClient client;

        public World(Broker broker)
        {
            Broker = broker;
            Admin = new ServiceBusAdministrationClient(Text(Root, broker.Key, broker.HttpPort));
        }

        public Broker Broker { get; }

        public ServiceBusAdministrationClient Admin { get; }

        /// <summary>The client of scenarios that need only one.</summary>
        public ServiceBusClient Client
        {
            get { return client ?? (client = New()); }
        }

        static string Text(string policy, string key, string port)
        {
            return $"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName={policy};SharedAccessKey={key};UseDevelopmentEmulator=true";
        }

        public string Messaging(string policy, string key)
        {
            return Text(policy, key, Broker.AmqpPort);
        }

        /// <summary>A part of a connection string.</summary>
        public static string Part(string text, string name)
        {
            return text.Split(';').First(part => part.StartsWith(name + "=")).Substring(name.Length + 1);
        }

        public ServiceBusClient New(Action<ServiceBusClientOptions> change = null, string text = null)
        {
            var options = new ServiceBusClientOptions();
            options.RetryOptions.TryTimeout = TimeSpan.FromSeconds(15);
            change?.Invoke(options);
            var made = new ServiceBusClient(text ?? Messaging(Root, Broker.Key), options);
            clients.Add(made);
            return made;
        }

        public static string Name(string kind)
        {
            return $"{kind}-{Interlocked.Increment(ref count)}";
        }

        public async Task<string> Queue(Action<CreateQueueOptions> change = null)
        {
            var options = new CreateQueueOptions(Name("queue")) { LockDuration = TimeSpan.FromSeconds(30) };
            change?.Invoke(options);
            await Admin.CreateQueueAsync(options);
            return options.Name;
        }

        public Task<string> SessionQueue()
        {
            return Queue(options => options.RequiresSession = true);
        }

        /// <summary>A topic with a subscription `all`.</summary>
        public async Task<string> Topic()
        {
            var name = Name("topic");
            await Admin.CreateTopicAsync(name);
            await Admin.CreateSubscriptionAsync(name, "all");
            return name;
        }

        public async Task Send(string entity, params string[] bodies)
        {
            var sender = Client.CreateSender(entity);
            await sender.SendMessagesAsync(bodies.Select(body => new ServiceBusMessage(body)));
        }

        /// <summary>Receives this number of messages, or fails.</summary>
        public static async Task<List<ServiceBusReceivedMessage>> Receive(ServiceBusReceiver receiver, int number)
        {
            var found = new List<ServiceBusReceivedMessage>();
            while (found.Count < number)
            {
                var came = await receiver.ReceiveMessagesAsync(number - found.Count, ReceiveMax);
                Check.That(came.Count > 0, $"{found.Count} of {number} messages came");
                found.AddRange(came);
            }
            return found;
        }

        public static async Task<ServiceBusReceivedMessage> One(ServiceBusReceiver receiver)
        {
            return (await Receive(receiver, 1))[0];
        }

        public static async Task Empty(ServiceBusReceiver receiver, string what)
        {
            var message = await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(1));
            Check.That(message == null, $"{what}: `{message?.Body}` came");
        }

        public async Task<long> Active(string queue)
        {
            return (await Admin.GetQueueRuntimePropertiesAsync(queue)).Value.ActiveMessageCount;
        }

        public async Task Close()
        {
            foreach (var made in clients)
            {
                await made.DisposeAsync();
            }
        }
    }

    /// <summary>A title that states the tested rule, and the code of the test.</summary>
    sealed class Scenario
    {
        public Scenario(string title, Func<World, Task> body)
        {
            Title = title;
            Body = body;
        }

        public string Title { get; }

        public Func<World, Task> Body { get; }
    }

    sealed class Scenarios
    {
        public List<Scenario> All { get; } = new List<Scenario>();

        public void Add(string title, Func<World, Task> body)
        {
            All.Add(new Scenario(title, body));
        }
    }
}
