package sdk;

import static sdk.Check.equal;
import static sdk.Check.refused;
import static sdk.World.nothing;
import static sdk.World.one;

import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import java.util.List;

/** Rules of a subscription, through its management node. */
final class Rules {
    private Rules() {}

    private static ServiceBusRuleManagerClient manager(World w, String topic) {
        return w.keep(w.clients().ruleManager().topicName(topic).subscriptionName("s").buildClient());
    }

    private static List<String> names(ServiceBusRuleManagerClient manager) {
        return manager.listRules().stream().map(RuleProperties::getName).sorted().toList();
    }

    static void scenarios(List<Scenario> all) {
        // AMQP-86, AMQP-87, TOP-14
        all.add(new Scenario("rules are listed, added and removed", w -> {
            String topic = w.topic("s");
            var manager = manager(w, topic);
            equal(names(manager), List.of("$Default"), "rules");
            manager.createRule("eu", new CreateRuleOptions(new SqlRuleFilter("region = 'eu'")).setAction(new SqlRuleAction("SET seen = 1")));
            manager.deleteRule("$Default");
            RuleProperties rule = manager.listRules().stream().toList().get(0);
            equal(rule.getName(), "eu", "name");
            equal(((SqlRuleFilter) rule.getFilter()).getSqlExpression(), "region = 'eu'", "filter");
            equal(((SqlRuleAction) rule.getAction()).getSqlExpression(), "SET seen = 1", "action");
            var sender = w.sender(topic);
            for (String region : List.of("us", "eu")) {
                var message = new ServiceBusMessage(region);
                message.getApplicationProperties().put("region", region);
                sender.sendMessage(message);
            }
            var receiver = w.subscription(topic, "s");
            var message = one(receiver);
            equal(message.getBody().toString(), "eu", "body");
            equal(((Number) message.getApplicationProperties().get("seen")).intValue(), 1, "what the action set");
            nothing(receiver);
        }));

        // AMQP-86, AMQP-87, TOP-16
        all.add(new Scenario("a rule may be of properties", w -> {
            String topic = w.topic("s");
            var manager = manager(w, topic);
            manager.deleteRule("$Default");
            var filter = new CorrelationRuleFilter().setLabel("tea").setCorrelationId("c");
            filter.getProperties().put("size", "large");
            manager.createRule("tea", new CreateRuleOptions(filter));
            var told = (CorrelationRuleFilter) manager.listRules().stream().toList().get(0).getFilter();
            equal(told.getLabel(), "tea", "subject");
            equal(told.getProperties().get("size"), "large", "property");
            var sender = w.sender(topic);
            for (String subject : List.of("milk", "tea")) {
                var message = new ServiceBusMessage(subject).setSubject(subject).setCorrelationId("c");
                message.getApplicationProperties().put("size", "large");
                sender.sendMessage(message);
            }
            var receiver = w.subscription(topic, "s");
            equal(one(receiver).getBody().toString(), "tea", "body");
            nothing(receiver);
        }));

        // AMQP-87
        all.add(new Scenario("true and false are filters", w -> {
            String topic = w.topic("s");
            var manager = manager(w, topic);
            manager.createRule("none", new CreateRuleOptions(new FalseRuleFilter()));
            manager.createRule("all", new CreateRuleOptions(new TrueRuleFilter()));
            equal(names(manager), List.of("$Default", "all", "none"), "rules");
        }));

        // AMQP-82
        all.add(new Scenario("a rule is added once and removed once", w -> {
            var manager = manager(w, w.topic("s"));
            manager.createRule("one", new CreateRuleOptions(new TrueRuleFilter()));
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_ALREADY_EXISTS, () -> manager.createRule("one", new CreateRuleOptions(new TrueRuleFilter())));
            manager.deleteRule("one");
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> manager.deleteRule("one"));
        }));
    }
}
