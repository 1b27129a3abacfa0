using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace Peeklock.Sdk
{
    /// <summary>Subscriptions and their rules.</summary>
    static class Topics
    {
        public static void Add(Scenarios all)
        {
            // TOP-01
            all.Add("each subscription gets a copy", async world =>
            {
                var topic = await world.Topic();
                await world.Admin.CreateSubscriptionAsync(topic, "other");
                await world.Send(topic, "news");
                foreach (var subscription in new[] { "all", "other" })
                {
                    var receiver = world.Client.CreateReceiver(topic, subscription);
                    var message = await World.One(receiver);
                    Check.Equal(message.Body.ToString(), "news", subscription);
                    await receiver.CompleteMessageAsync(message);
                }
            });

            // SQL-01, TOP-16, ADM-46
            all.Add("rules select messages and change their copies", async world =>
            {
                var topic = await world.Topic();
                var rule = new CreateRuleOptions("dear", new SqlRuleFilter("price > 100 AND color IN ('red', 'blue')"))
                {
                    Action = new SqlRuleAction("SET dear = 'yes'; REMOVE color"),
                };
                await world.Admin.CreateSubscriptionAsync(new CreateSubscriptionOptions(topic, "dear"), rule);
                var filter = new CorrelationRuleFilter { Subject = "tea" };
                filter.ApplicationProperties["color"] = "green";
                await world.Admin.CreateSubscriptionAsync(
                    new CreateSubscriptionOptions(topic, "green"), new CreateRuleOptions("green", filter));
                var sender = world.Client.CreateSender(topic);
                await sender.SendMessagesAsync(new[] { Goods("1", 200, "red"), Goods("2", 200, "green"), Goods("3", 50, "blue") });
                var dear = await World.One(world.Client.CreateReceiver(topic, "dear"));
                Check.Equal(dear.Body.ToString(), "1", "selected by SQL");
                Check.Equal(dear.ApplicationProperties["dear"], "yes", "a property that was set");
                Check.That(!dear.ApplicationProperties.ContainsKey("color"), "a property that was removed");
                Check.Equal((await World.One(world.Client.CreateReceiver(topic, "green"))).Body.ToString(), "2", "selected by properties");
                Check.Equal((await World.Receive(world.Client.CreateReceiver(topic, "all"), 3)).Count, 3, "selected by the default rule");
            });

            // AMQP-87
            all.Add("the rule manager adds, lists and removes rules", async world =>
            {
                var topic = await world.Topic();
                var manager = world.Client.CreateRuleManager(topic, "all");
                await manager.CreateRuleAsync("red", new SqlRuleFilter("color = 'red'"));
                await manager.DeleteRuleAsync(RuleProperties.DefaultRuleName);
                Check.Same(await Names(manager), new[] { "red" }, "rules");
                var sender = world.Client.CreateSender(topic);
                await sender.SendMessagesAsync(new[] { Goods("1", 1, "red"), Goods("2", 1, "green") });
                var receiver = world.Client.CreateReceiver(topic, "all");
                var message = await World.One(receiver);
                Check.Equal(message.Body.ToString(), "1", "body");
                await receiver.CompleteMessageAsync(message);
                await World.Empty(receiver, "a message that no rule selects");
                await Check.Refused(
                    ServiceBusFailureReason.MessagingEntityAlreadyExists,
                    () => manager.CreateRuleAsync("red", new TrueRuleFilter()), "a rule that exists");
                await Check.Refused(
                    ServiceBusFailureReason.MessagingEntityNotFound, () => manager.DeleteRuleAsync("none"), "a rule that does not exist");
            });
        }

        static ServiceBusMessage Goods(string body, int price, string color)
        {
            var message = new ServiceBusMessage(body) { Subject = "tea" };
            message.ApplicationProperties["price"] = price;
            message.ApplicationProperties["color"] = color;
            return message;
        }

        static async Task<List<string>> Names(ServiceBusRuleManager manager)
        {
            var names = new List<string>();
            var rules = manager.GetRulesAsync().GetAsyncEnumerator();
            while (await rules.MoveNextAsync())
            {
                names.Add(rules.Current.Name);
            }
            return names;
        }
    }
}
