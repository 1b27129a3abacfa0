using System;
using System.Collections.Generic;
using System.Threading.Tasks;
using Azure;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace Peeklock.Sdk
{
    static class Administration
    {
        public static void Add(Scenarios all)
        {
            // ADM-02, ADM-31
            all.Add("a queue is created, read, updated, listed and deleted", async world =>
            {
                var name = World.Name("queue");
                var created = (await world.Admin.CreateQueueAsync(new CreateQueueOptions(name)
                {
                    LockDuration = TimeSpan.FromSeconds(45),
                    MaxDeliveryCount = 7,
                    DefaultMessageTimeToLive = TimeSpan.FromDays(3),
                    RequiresDuplicateDetection = true,
                    UserMetadata = "kitchen",
                })).Value;
                Check.Equal(created.LockDuration, TimeSpan.FromSeconds(45), "lock duration");
                var read = (await world.Admin.GetQueueAsync(name)).Value;
                Check.Equal(read, created, "description");
                read.MaxDeliveryCount = 9;
                read.DefaultMessageTimeToLive = TimeSpan.MaxValue;
                var updated = (await world.Admin.UpdateQueueAsync(read)).Value;
                Check.Equal(updated.MaxDeliveryCount, 9, "delivery count");
                Check.Equal(updated.DefaultMessageTimeToLive, TimeSpan.MaxValue, "time to live");
                Check.That((await All(world.Admin.GetQueuesAsync())).Exists(one => one.Name == name), "it is listed");
                await world.Admin.DeleteQueueAsync(name);
                Check.That(!(await world.Admin.QueueExistsAsync(name)).Value, "it is gone");
            });

            // ADM-02
            all.Add("errors have the reasons that the SDK documents", async world =>
            {
                var queue = await world.Queue();
                await Check.Refused(
                    ServiceBusFailureReason.MessagingEntityAlreadyExists, () => world.Admin.CreateQueueAsync(queue), "a queue that exists");
                await Check.Refused(
                    ServiceBusFailureReason.MessagingEntityNotFound, () => world.Admin.GetQueueAsync("nowhere"), "a missing queue");
                await Check.Refused(
                    ServiceBusFailureReason.MessagingEntityNotFound, () => world.Admin.DeleteTopicAsync("nowhere"), "a missing topic");
                var options = new CreateQueueOptions(World.Name("queue")) { ForwardTo = "nowhere" };
                await Check.Status(400, () => world.Admin.CreateQueueAsync(options), "a destination that does not exist");
            });

            // ADM-46
            all.Add("topics, subscriptions and rules are listed", async world =>
            {
                var topic = await world.Topic();
                var rule = new CreateRuleOptions("red", new SqlRuleFilter("color = @color") { Parameters = { ["@color"] = "red" } });
                await world.Admin.CreateRuleAsync(topic, "all", rule);
                var subscriptions = await All(world.Admin.GetSubscriptionsAsync(topic));
                Check.Equal(subscriptions.Count, 1, "subscriptions");
                var rules = await All(world.Admin.GetRulesAsync(topic, "all"));
                Check.Equal(rules.Count, 2, "rules");
                Check.That(rules.Exists(one => one.Name == "red" && one.Filter.Equals(rule.Filter)), "the rule comes as it was given");
                await world.Admin.DeleteRuleAsync(topic, "all", "red");
                Check.That(!(await world.Admin.RuleExistsAsync(topic, "all", "red")).Value, "the rule is gone");
            });

            // CNT-01
            all.Add("runtime properties count messages", async world =>
            {
                var queue = await world.Queue();
                await world.Send(queue, "1", "2", "3");
                var receiver = world.Client.CreateReceiver(queue);
                await receiver.DeadLetterMessageAsync(await World.One(receiver));
                await world.Client.CreateSender(queue).ScheduleMessageAsync(new ServiceBusMessage("later"), DateTimeOffset.UtcNow.AddHours(1));
                var counts = (await world.Admin.GetQueueRuntimePropertiesAsync(queue)).Value;
                Check.Same(
                    new[] { counts.ActiveMessageCount, counts.DeadLetterMessageCount, counts.ScheduledMessageCount, counts.TotalMessageCount },
                    new[] { 2L, 1L, 1L, 4L }, "active, dead-lettered, scheduled, total");
            });

            // SEC-21, ADM-02
            all.Add("a policy of a queue grants and denies access", async world =>
            {
                var queue = await world.Queue(options =>
                    options.AuthorizationRules.Add(new SharedAccessAuthorizationRule("sender", new[] { AccessRights.Send })));
                var found = (await world.Admin.GetQueueAsync(queue)).Value.AuthorizationRules;
                var rule = (SharedAccessAuthorizationRule)found[0];
                Check.Same(rule.Rights, new[] { AccessRights.Send }, "rights");
                var client = world.New(null, world.Messaging("sender", rule.PrimaryKey));
                await client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage("order"));
                await Check.Thrown<UnauthorizedAccessException>(
                    () => client.CreateReceiver(queue).ReceiveMessageAsync(TimeSpan.FromSeconds(2)), "receiving without Listen");
            });

            // ADM-02
            all.Add("the namespace has properties", async world =>
            {
                var properties = (await world.Admin.GetNamespacePropertiesAsync()).Value;
                Check.Equal(properties.MessagingSku, MessagingSku.Premium, "tier");
            });
        }

        static async Task<List<T>> All<T>(AsyncPageable<T> pages)
        {
            var found = new List<T>();
            var items = pages.GetAsyncEnumerator();
            while (await items.MoveNextAsync())
            {
                found.Add(items.Current);
            }
            return found;
        }
    }
}
