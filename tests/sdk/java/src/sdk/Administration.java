package sdk;

import static sdk.Check.equal;
import static sdk.Check.refused;
import static sdk.Check.that;
import static sdk.World.nothing;
import static sdk.World.one;

import com.azure.core.exception.HttpResponseException;
import com.azure.core.http.HttpClient;
import com.azure.core.http.netty.NettyAsyncHttpClientBuilder;
import com.azure.core.http.policy.FixedDelay;
import com.azure.core.http.policy.RetryPolicy;
import com.azure.core.util.Context;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.AccessRights;
import com.azure.messaging.servicebus.administration.models.AuthorizationRule;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.MessagingSku;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SharedAccessAuthorizationRule;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import io.netty.handler.ssl.SslContextBuilder;
import java.net.URL;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;

/**
 * Scenarios for the administration client, unchanged, over https with a certificate that it
 * verifies. The client connects to port 443 whatever port the connection string names, so a policy
 * of the application redirects it to the port of the broker (ADM-02).
 */
final class Administration {
    private Administration() {}

    /** An action with a client. */
    private interface Body {
        void run(World world, ServiceBusAdministrationClient admin) throws Exception;
    }

    private static Scenario scenario(String title, Body body) {
        return new Scenario(title, w -> {
            // Messages use TLS too, and the SDK trusts the authorities of the Java runtime.
            SSLContext.setDefault(w.broker.trust);
            body.run(w, client(w.broker, w.broker.secureString("amqp")));
        });
    }

    private static ServiceBusAdministrationClient client(Broker broker, String text) throws SSLException {
        var trusting = SslContextBuilder.forClient().trustManager(broker.authority()).build();
        HttpClient http = new NettyAsyncHttpClientBuilder(
            reactor.netty.http.client.HttpClient.create().secure(spec -> spec.sslContext(trusting))).build();
        return new ServiceBusAdministrationClientBuilder()
            .connectionString(text)
            .httpClient(http)
            .retryPolicy(new RetryPolicy(new FixedDelay(0, Duration.ofMillis(1))))
            .addPolicy((context, next) -> {
                try {
                    URL url = context.getHttpRequest().getUrl();
                    context.getHttpRequest().setUrl(new URL("https", "localhost", Integer.parseInt(broker.port("amqp")), url.getFile()));
                } catch (java.net.MalformedURLException wrong) {
                    return reactor.core.publisher.Mono.error(wrong);
                }
                return next.process();
            })
            .buildClient();
    }

    /** Asserts an answer with this status and reason. */
    private static void denied(int status, String said, Check.Action action) throws Exception {
        var error = refused(HttpResponseException.class, action);
        equal(error.getResponse().getStatusCode(), status, "status");
        that(error.getMessage().contains(said), "`" + said + "` is not in " + error.getMessage());
    }

    private static CreateQueueOptions everything() {
        return new CreateQueueOptions()
            .setLockDuration(Duration.ofSeconds(13)).setMaxSizeInMegabytes(3072).setDuplicateDetectionRequired(true)
            .setSessionRequired(true).setDefaultMessageTimeToLive(Duration.ofDays(3)).setDeadLetteringOnMessageExpiration(true)
            .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(12)).setMaxDeliveryCount(14)
            .setBatchedOperationsEnabled(false).setStatus(EntityStatus.RECEIVE_DISABLED).setAutoDeleteOnIdle(Duration.ofMinutes(10))
            .setPartitioningEnabled(true).setUserMetadata("a <b> & 'c' \"é\"").setMaxMessageSizeInKilobytes(4096);
    }

    private static void isEverything(QueueProperties told) {
        equal(told.getLockDuration(), Duration.ofSeconds(13), "lock duration");
        equal(told.getMaxSizeInMegabytes(), 3072L, "size");
        equal(told.isDuplicateDetectionRequired(), true, "duplicate detection");
        equal(told.isSessionRequired(), true, "sessions");
        equal(told.getDefaultMessageTimeToLive(), Duration.ofDays(3), "time to live");
        equal(told.isDeadLetteringOnMessageExpiration(), true, "dead-lettering");
        equal(told.getDuplicateDetectionHistoryTimeWindow(), Duration.ofMinutes(12), "window");
        equal(told.getMaxDeliveryCount(), 14, "deliveries");
        equal(told.isBatchedOperationsEnabled(), false, "batched operations");
        equal(told.getStatus(), EntityStatus.RECEIVE_DISABLED, "status");
        equal(told.getAutoDeleteOnIdle(), Duration.ofMinutes(10), "idle");
        equal(told.isPartitioningEnabled(), true, "partitioning");
        equal(told.getUserMetadata(), "a <b> & 'c' \"é\"", "metadata");
        equal(told.getMaxMessageSizeInKilobytes(), 4096L, "message size");
    }

    static void scenarios(List<Scenario> all) {
        // ADM-38
        all.add(scenario("a queue with a name only has the defaults", (w, admin) -> {
            String name = w.unique();
            equal(admin.createQueue(name).getName(), name, "name");
            QueueProperties told = admin.getQueue(name);
            equal(told.getLockDuration(), Duration.ofMinutes(1), "lock duration");
            equal(told.getMaxDeliveryCount(), 10, "deliveries");
            equal(told.getMaxSizeInMegabytes(), 1024L, "size");
            equal(told.getStatus(), EntityStatus.ACTIVE, "status");
            equal(told.isSessionRequired(), false, "sessions");
        }));

        // ADM-34
        all.add(scenario("a queue keeps all its properties", (w, admin) -> {
            String name = w.unique();
            isEverything(admin.createQueue(name, everything()));
            isEverything(admin.getQueue(name));
        }));

        // ADM-31, ADM-36
        all.add(scenario("a queue is changed, and its destinations cleared", (w, admin) -> {
            String target = w.unique();
            String name = w.unique();
            admin.createQueue(target);
            admin.createQueue(name, new CreateQueueOptions().setForwardTo(target).setForwardDeadLetteredMessagesTo(target).setUserMetadata("mine"));
            QueueProperties told = admin.getQueue(name);
            that(told.getForwardTo().endsWith("/" + target), "it forwards to " + told.getForwardTo());
            told = admin.updateQueue(told.setMaxDeliveryCount(5));
            that(told.getForwardTo().endsWith("/" + target), "it forwards to " + told.getForwardTo());
            admin.updateQueue(told.setForwardTo(null).setForwardDeadLetteredMessagesTo(null).setUserMetadata(null));
            told = admin.getQueue(name);
            that(told.getForwardTo() == null && told.getForwardDeadLetteredMessagesTo() == null, "it forwards");
            that(told.getUserMetadata() == null, "it has metadata");
            equal(told.getMaxDeliveryCount(), 5, "deliveries");
        }));

        // ADM-21, ADM-51
        all.add(scenario("absent entities are reported", (w, admin) -> {
            equal(admin.getQueueExists("absent"), false, "a queue");
            equal(admin.getTopicExists("absent"), false, "a topic");
            equal(admin.getSubscriptionExists("absent", "s"), false, "a subscription");
            denied(404, "absent", () -> admin.getQueue("absent"));
            denied(404, "absent", () -> admin.deleteQueue("absent"));
        }));

        // ADM-21, ADM-53
        all.add(scenario("a queue is deleted", (w, admin) -> {
            String name = w.unique();
            admin.createQueue(name);
            equal(admin.getQueueExists(name), true, "whether it is there");
            admin.deleteQueue(name);
            equal(admin.getQueueExists(name), false, "whether it is there");
        }));

        // ADM-51
        all.add(scenario("an existing entity is not created again", (w, admin) -> {
            String name = w.unique();
            admin.createQueue(name);
            denied(409, name, () -> admin.createQueue(name));
            denied(409, name, () -> admin.createTopic(name));
        }));

        // ADM-24, ADM-38
        all.add(scenario("invalid values are named", (w, admin) -> {
            denied(400, "LockDuration", () -> admin.createQueue(w.unique(), new CreateQueueOptions().setLockDuration(Duration.ofMinutes(6))));
            denied(400, "AutoDeleteOnIdle", () -> admin.createQueue(w.unique(), new CreateQueueOptions().setAutoDeleteOnIdle(Duration.ofSeconds(1))));
            denied(400, "UserMetadata", () -> admin.createQueue(w.unique(), new CreateQueueOptions().setUserMetadata("x".repeat(1025))));
            denied(400, "absent", () -> admin.createQueue(w.unique(), new CreateQueueOptions().setForwardTo("absent")));
        }));

        // ADM-46, CNT-09
        all.add(scenario("runtime properties of a queue", (w, admin) -> {
            String name = w.unique();
            admin.createQueue(name);
            w.send(name, "dead", "active");
            var receiver = w.receiver(name);
            receiver.deadLetter(one(receiver));
            w.sender(name).scheduleMessage(new ServiceBusMessage("x"), OffsetDateTime.now().plusHours(1));
            var told = admin.getQueueRuntimeProperties(name);
            equal(told.getActiveMessageCount(), 1, "active");
            equal(told.getDeadLetterMessageCount(), 1, "dead letters");
            equal(told.getScheduledMessageCount(), 1, "scheduled");
            equal(told.getTotalMessageCount(), 3L, "all");
            that(told.getSizeInBytes() > 0, "it has no size");
            that(Duration.between(told.getCreatedAt(), OffsetDateTime.now()).abs().toMinutes() < 1, "created at");
        }));

        // ADM-23
        all.add(scenario("queues are listed over several pages", (w, admin) -> {
            var names = new ArrayList<String>();
            for (int n = 0; n < 120; n += 1) {
                names.add(w.unique());
                w.ask("PUT", "queues/" + names.get(n), "{}");
            }
            var told = admin.listQueues().stream().map(QueueProperties::getName).toList();
            that(told.containsAll(names), "of 120 queues not all are among " + told.size());
            equal(told.stream().distinct().count(), (long) told.size(), "different ones");
        }));

        // ADM-34, ADM-31, ADM-46
        all.add(scenario("a topic keeps its properties, also over a change", (w, admin) -> {
            String name = w.unique();
            admin.createTopic(name, new CreateTopicOptions()
                .setMaxSizeInMegabytes(3072).setDuplicateDetectionRequired(true).setDefaultMessageTimeToLive(Duration.ofDays(3))
                .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(12)).setBatchedOperationsEnabled(false)
                .setStatus(EntityStatus.SEND_DISABLED).setAutoDeleteOnIdle(Duration.ofMinutes(10)).setUserMetadata("mine"));
            admin.updateTopic(admin.getTopic(name).setUserMetadata("yours"));
            TopicProperties told = admin.getTopic(name);
            equal(told.getUserMetadata(), "yours", "metadata");
            equal(told.getMaxSizeInMegabytes(), 3072L, "size");
            equal(told.isDuplicateDetectionRequired(), true, "duplicate detection");
            equal(told.getDefaultMessageTimeToLive(), Duration.ofDays(3), "time to live");
            equal(told.getStatus(), EntityStatus.SEND_DISABLED, "status");
        }));

        // ADM-22, CNT-04
        all.add(scenario("a deleted topic deletes its subscriptions", (w, admin) -> {
            String name = w.unique();
            admin.createTopic(name);
            admin.createSubscription(name, "s");
            equal(admin.getTopicRuntimeProperties(name).getSubscriptionCount(), 1, "subscriptions");
            that(admin.listTopics().stream().anyMatch(topic -> topic.getName().equals(name)), "it is not listed");
            admin.deleteTopic(name);
            equal(admin.getSubscriptionExists(name, "s"), false, "whether it is there");
        }));

        // ADM-34, ADM-31
        all.add(scenario("a subscription keeps its properties, also over a change", (w, admin) -> {
            String name = w.unique();
            admin.createTopic(name);
            admin.createSubscription(name, "s", new CreateSubscriptionOptions()
                .setLockDuration(Duration.ofSeconds(13)).setSessionRequired(true).setDefaultMessageTimeToLive(Duration.ofDays(3))
                .setDeadLetteringOnMessageExpiration(true).setMaxDeliveryCount(14).setBatchedOperationsEnabled(false)
                .setAutoDeleteOnIdle(Duration.ofMinutes(10)).setUserMetadata("mine"));
            admin.updateSubscription(admin.getSubscription(name, "s").setMaxDeliveryCount(3));
            SubscriptionProperties told = admin.getSubscription(name, "s");
            equal(told.getTopicName(), name, "topic");
            equal(told.getSubscriptionName(), "s", "name");
            equal(told.getLockDuration(), Duration.ofSeconds(13), "lock duration");
            equal(told.isSessionRequired(), true, "sessions");
            equal(told.getMaxDeliveryCount(), 3, "deliveries");
            equal(told.getUserMetadata(), "mine", "metadata");
        }));

        // ADM-23, ADM-35, ADM-46
        all.add(scenario("subscriptions are listed and counted", (w, admin) -> {
            String name = w.unique();
            admin.createTopic(name);
            for (String subscription : List.of("b", "a")) admin.createSubscription(name, subscription);
            w.send(name, "x");
            equal(admin.listSubscriptions(name).stream().map(SubscriptionProperties::getSubscriptionName).toList(), List.of("a", "b"), "names");
            var told = admin.getSubscriptionRuntimeProperties(name, "a");
            equal(told.getActiveMessageCount(), 1, "active");
            equal(told.getTotalMessageCount(), 1L, "all");
            admin.deleteSubscription(name, "a");
            equal(admin.getSubscriptionExists(name, "a"), false, "whether it is there");
        }));

        // ADM-40, ADM-42
        all.add(scenario("rules are listed, and the default one is replaced", (w, admin) -> {
            String name = w.unique();
            admin.createTopic(name);
            admin.createSubscription(name, "s");
            RuleProperties rule = admin.listRules(name, "s").stream().toList().get(0);
            equal(rule.getName(), "$Default", "name");
            that(rule.getFilter() instanceof TrueRuleFilter, "it is " + rule.getFilter());
            admin.createRule(name, "mine", "s", new CreateRuleOptions(new SqlRuleFilter("a = 1")).setAction(new SqlRuleAction("SET b = 2")));
            admin.deleteRule(name, "s", "$Default");
            equal(admin.listRules(name, "s").stream().map(RuleProperties::getName).toList(), List.of("mine"), "rules");
            rule = admin.getRule(name, "s", "mine");
            equal(((SqlRuleFilter) rule.getFilter()).getSqlExpression(), "a = 1", "filter");
            equal(((SqlRuleAction) rule.getAction()).getSqlExpression(), "SET b = 2", "action");
        }));

        // ADM-41
        all.add(scenario("a rule in SQL with parameters selects", (w, admin) -> {
            String name = w.unique();
            admin.createTopic(name);
            var filter = new SqlRuleFilter("colour = @text");
            filter.getParameters().put("@text", "red");
            admin.createSubscription(name, "s", "r", new CreateSubscriptionOptions(), new CreateRuleOptions(filter));
            equal(((SqlRuleFilter) admin.getRule(name, "s", "r").getFilter()).getParameters().get("@text"), "red", "parameter");
            for (String colour : List.of("blue", "red")) {
                var message = new ServiceBusMessage(colour);
                message.getApplicationProperties().put("colour", colour);
                w.sender(name).sendMessage(message);
            }
            var receiver = w.subscription(name, "s");
            equal(one(receiver).getBody().toString(), "red", "body");
            nothing(receiver);
        }));

        // ADM-40, TOP-24
        all.add(scenario("a rule by correlation is changed", (w, admin) -> {
            String name = w.unique();
            admin.createTopic(name);
            admin.createSubscription(name, "s");
            var filter = new CorrelationRuleFilter().setCorrelationId("c").setMessageId("m").setTo("t").setReplyTo("r")
                .setLabel("l").setSessionId("s").setReplyToSessionId("z").setContentType("text/plain");
            filter.getProperties().put("colour", "red");
            RuleProperties rule = admin.createRule(name, "r", "s", new CreateRuleOptions(filter));
            var told = (CorrelationRuleFilter) admin.getRule(name, "s", "r").getFilter();
            equal(told.getCorrelationId(), "c", "correlation id");
            equal(told.getReplyToSessionId(), "z", "reply to session");
            equal(told.getProperties().get("colour"), "red", "property");
            admin.updateRule(name, "s", rule.setFilter(new CorrelationRuleFilter().setLabel("tea")));
            equal(((CorrelationRuleFilter) admin.getRule(name, "s", "r").getFilter()).getLabel(), "tea", "subject");
        }));

        // ADM-43
        all.add(scenario("an invalid rule is refused", (w, admin) -> {
            String name = w.unique();
            admin.createTopic(name);
            admin.createSubscription(name, "s");
            denied(400, "column 5", () -> admin.createRule(name, "r", "s", new CreateRuleOptions(new SqlRuleFilter("a = = 1"))));
        }));

        // ADM-45
        all.add(scenario("the namespace has properties", (w, admin) -> {
            var told = admin.getNamespaceProperties();
            equal(told.getName(), "peeklock", "name");
            equal(told.getMessagingSku(), MessagingSku.PREMIUM, "tier");
            equal(told.getMessagingUnits(), 1, "units");
        }));

        // ADM-39
        all.add(scenario("authorization rules are kept", (w, admin) -> {
            String name = w.unique();
            AuthorizationRule rule = new SharedAccessAuthorizationRule("sender", Rights.WRONG, "B" + Rights.WRONG.substring(1), List.of(AccessRights.SEND));
            var options = new CreateQueueOptions();
            options.getAuthorizationRules().add(rule);
            admin.createQueue(name, options);
            var told = admin.getQueue(name).getAuthorizationRules();
            equal(told.size(), 1, "rules");
            equal(told.get(0).getKeyName(), "sender", "name");
            equal(told.get(0).getPrimaryKey(), Rights.WRONG, "key");
        }));

        // ADM-11
        all.add(scenario("a wrong key is refused", (w, admin) -> {
            var stranger = client(w.broker, w.broker.secureString("amqp").replace("SharedAccessKey=", "SharedAccessKey=x"));
            refused(com.azure.core.exception.ClientAuthenticationException.class, () -> stranger.getQueue("any"));
        }));

        // ADM-53
        all.add(scenario("a response has its status", (w, admin) -> {
            String name = w.unique();
            equal(admin.createQueueWithResponse(name, new CreateQueueOptions(), Context.NONE).getStatusCode(), 201, "status");
            equal(admin.deleteQueueWithResponse(name, Context.NONE).getStatusCode(), 200, "status");
        }));
    }
}
