package main

// Scenarios for the package `admin`, unchanged, over https with a certificate that it verifies.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// administrator returns a client with this connection string.
func (w *World) administrator(text string) *admin.Client {
	return got(admin.NewClientFromConnectionString(text, &admin.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: w.broker.http,
		Retry:     policy.RetryOptions{MaxRetries: -1},
	}}))
}

// denied asserts that a request was answered with this status and reason.
func denied(err error, status int, said string) {
	var told *azcore.ResponseError
	that(errors.As(err, &told), "it is no answer: %v", err)
	equal(told.StatusCode, status, "status")
	that(strings.Contains(err.Error(), said), "%q is not in %v", said, err)
}

// administered registers a scenario with a client.
func administered(title string, run func(*World, *admin.Client)) {
	scenario(title, func(w *World) {
		// The same string is valid for messages (LIS-05).
		text := w.broker.secureString("amqp")
		w.client = w.open(text, &azservicebus.ClientOptions{TLSConfig: w.broker.named()})
		run(w, w.administrator(text))
	})
}

func administration() {
	queue := admin.QueueProperties{
		LockDuration:                        ptr("PT13S"),
		MaxSizeInMegabytes:                  ptr(int32(3072)),
		RequiresDuplicateDetection:          ptr(true),
		RequiresSession:                     ptr(true),
		DefaultMessageTimeToLive:            ptr("P3DT2M"),
		DeadLetteringOnMessageExpiration:    ptr(true),
		DuplicateDetectionHistoryTimeWindow: ptr("PT12M"),
		MaxDeliveryCount:                    ptr(int32(14)),
		EnableBatchedOperations:             ptr(false),
		Status:                              ptr(admin.EntityStatusReceiveDisabled),
		AutoDeleteOnIdle:                    ptr("PT10M"),
		EnablePartitioning:                  ptr(true),
		UserMetadata:                        ptr("a <b> & 'c' \"é\""),
		MaxMessageSizeInKilobytes:           ptr(int64(4096)),
	}
	topic := admin.TopicProperties{
		MaxSizeInMegabytes:                  ptr(int32(3072)),
		RequiresDuplicateDetection:          ptr(true),
		DefaultMessageTimeToLive:            ptr("P3D"),
		DuplicateDetectionHistoryTimeWindow: ptr("PT12M"),
		EnableBatchedOperations:             ptr(false),
		Status:                              ptr(admin.EntityStatusSendDisabled),
		AutoDeleteOnIdle:                    ptr("PT10M"),
		EnablePartitioning:                  ptr(true),
		SupportOrdering:                     ptr(false),
		UserMetadata:                        ptr("mine"),
		MaxMessageSizeInKilobytes:           ptr(int64(4096)),
	}
	subscription := admin.SubscriptionProperties{
		LockDuration:                                    ptr("PT13S"),
		RequiresSession:                                 ptr(true),
		DefaultMessageTimeToLive:                        ptr("P3D"),
		DeadLetteringOnMessageExpiration:                ptr(true),
		EnableDeadLetteringOnFilterEvaluationExceptions: ptr(false),
		MaxDeliveryCount:                                ptr(int32(14)),
		// This client does not send the status of a subscription.
		Status:                  ptr(admin.EntityStatusActive),
		AutoDeleteOnIdle:        ptr("PT10M"),
		EnableBatchedOperations: ptr(false),
		UserMetadata:            ptr("mine"),
	}

	// ADM-38
	administered("a queue with a name only has the defaults", func(w *World, client *admin.Client) {
		name := w.unique()
		equal(got(client.CreateQueue(w.ctx, name, nil)).QueueName, name, "name")
		told := got(client.GetQueue(w.ctx, name, nil))
		equal(*told.LockDuration, "PT1M", "lock duration")
		equal(*told.MaxDeliveryCount, int32(10), "deliveries")
		equal(*told.MaxSizeInMegabytes, int32(1024), "size")
		equal(*told.Status, admin.EntityStatusActive, "status")
		equal(*told.RequiresSession, false, "sessions")
	})

	// ADM-34
	administered("a queue keeps all its properties", func(w *World, client *admin.Client) {
		name := w.unique()
		equal(got(client.CreateQueue(w.ctx, name, &admin.CreateQueueOptions{Properties: &queue})).QueueProperties, queue, "what was created")
		equal(got(client.GetQueue(w.ctx, name, nil)).QueueProperties, queue, "what is told")
	})

	// ADM-31, ADM-36
	administered("a queue is changed, and its destinations cleared", func(w *World, client *admin.Client) {
		target, name := w.unique(), w.unique()
		got(client.CreateQueue(w.ctx, target, nil))
		got(client.CreateQueue(w.ctx, name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
			ForwardTo: &target, ForwardDeadLetteredMessagesTo: &target, UserMetadata: ptr("mine"),
		}}))
		told := got(client.GetQueue(w.ctx, name, nil)).QueueProperties
		that(strings.HasSuffix(*told.ForwardTo, "/"+target), "it forwards to %s", *told.ForwardTo)
		told.MaxDeliveryCount = ptr(int32(5))
		changed := got(client.UpdateQueue(w.ctx, name, told, nil))
		equal(*changed.MaxDeliveryCount, int32(5), "deliveries")
		that(strings.HasSuffix(*changed.ForwardTo, "/"+target), "it forwards to %s", *changed.ForwardTo)
		told.ForwardTo, told.ForwardDeadLetteredMessagesTo, told.UserMetadata = nil, nil, nil
		got(client.UpdateQueue(w.ctx, name, told, nil))
		told = got(client.GetQueue(w.ctx, name, nil)).QueueProperties
		that(told.ForwardTo == nil && told.ForwardDeadLetteredMessagesTo == nil && told.UserMetadata == nil, "they are kept")
		equal(*told.MaxDeliveryCount, int32(5), "deliveries")
	})

	// ADM-21, ADM-51
	administered("absent entities are reported as nothing, or refused", func(w *World, client *admin.Client) {
		that(got(client.GetQueue(w.ctx, "absent", nil)) == nil, "a queue is told")
		that(got(client.GetTopic(w.ctx, "absent", nil)) == nil, "a topic is told")
		that(got(client.GetSubscription(w.ctx, "absent", "s", nil)) == nil, "a subscription is told")
		_, err := client.DeleteQueue(w.ctx, "absent", nil)
		denied(err, 404, "absent")
		_, err = client.UpdateQueue(w.ctx, "absent", admin.QueueProperties{}, nil)
		denied(err, 404, "absent")
	})

	// ADM-21, ADM-22
	administered("a queue is deleted", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateQueue(w.ctx, name, nil))
		got(client.DeleteQueue(w.ctx, name, nil))
		that(got(client.GetQueue(w.ctx, name, nil)) == nil, "it is there")
	})

	// ADM-51
	administered("an existing entity is not created again", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateQueue(w.ctx, name, nil))
		_, err := client.CreateQueue(w.ctx, name, nil)
		denied(err, 409, name)
		_, err = client.CreateTopic(w.ctx, name, nil)
		denied(err, 409, name)
	})

	// ADM-24, ADM-38
	administered("invalid values are named", func(w *World, client *admin.Client) {
		for property, wrong := range map[string]admin.QueueProperties{
			"LockDuration":     {LockDuration: ptr("PT6M")},
			"MaxDeliveryCount": {MaxDeliveryCount: ptr(int32(0))},
			"AutoDeleteOnIdle": {AutoDeleteOnIdle: ptr("PT1S")},
			"UserMetadata":     {UserMetadata: ptr(strings.Repeat("x", 1025))},
		} {
			_, err := client.CreateQueue(w.ctx, w.unique(), &admin.CreateQueueOptions{Properties: &wrong})
			denied(err, 400, property)
		}
		name := w.unique()
		told := got(client.CreateQueue(w.ctx, name, nil)).QueueProperties
		told.RequiresSession = ptr(true)
		_, err := client.UpdateQueue(w.ctx, name, told, nil)
		denied(err, 400, "RequiresSession")
	})

	// ADM-36
	administered("a destination that is absent is refused", func(w *World, client *admin.Client) {
		wrong := &admin.QueueProperties{ForwardTo: ptr("absent")}
		_, err := client.CreateQueue(w.ctx, w.unique(), &admin.CreateQueueOptions{Properties: wrong})
		denied(err, 400, "absent")
	})

	// ADM-46, CNT-09
	administered("runtime properties of a queue", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateQueue(w.ctx, name, nil))
		w.send(name, "dead", "active")
		receiver := w.receiver(name)
		ok(receiver.DeadLetterMessage(w.ctx, w.one(receiver), nil))
		soon := time.Now().Add(time.Hour)
		got(w.sender(name).ScheduleMessages(w.ctx, []*azservicebus.Message{text("x")}, soon, nil))
		told := got(client.GetQueueRuntimeProperties(w.ctx, name, nil))
		counts := []int64{
			int64(told.ActiveMessageCount), int64(told.DeadLetterMessageCount), int64(told.ScheduledMessageCount),
			told.TotalMessageCount, int64(told.TransferMessageCount), int64(told.TransferDeadLetterMessageCount),
		}
		equal(counts, []int64{1, 1, 1, 3, 0, 0}, "counts")
		that(told.SizeInBytes > 0 && time.Since(told.CreatedAt).Abs() < time.Minute, "%+v", told.QueueRuntimeProperties)
	})

	// ADM-23
	administered("queues are listed in pages", func(w *World, client *admin.Client) {
		var names []string
		for range 25 {
			names = append(names, w.unique())
			got(client.CreateQueue(w.ctx, names[len(names)-1], nil))
		}
		for _, size := range []int32{0, 10} {
			var told []string
			for pages := client.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: size}); pages.More(); {
				for _, one := range got(pages.NextPage(w.ctx)).Queues {
					told = append(told, one.QueueName)
				}
			}
			for _, name := range names {
				that(slices.Contains(told, name), "%s is not among %d, by %d", name, len(told), size)
			}
		}
		counted := 0
		for pages := client.NewListQueuesRuntimePropertiesPager(nil); pages.More(); {
			counted += len(got(pages.NextPage(w.ctx)).QueueRuntimeProperties)
		}
		that(counted >= 25, "%d are counted", counted)
	})

	// ADM-34, ADM-31
	administered("a topic keeps all its properties", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateTopic(w.ctx, name, &admin.CreateTopicOptions{Properties: &topic}))
		told := got(client.GetTopic(w.ctx, name, nil)).TopicProperties
		equal(told, topic, "what is told")
		told.UserMetadata = ptr("yours")
		equal(*got(client.UpdateTopic(w.ctx, name, told, nil)).UserMetadata, "yours", "metadata")
	})

	// ADM-46, CNT-04
	administered("runtime properties of a topic", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateTopic(w.ctx, name, nil))
		got(client.CreateSubscription(w.ctx, name, "s", nil))
		told := got(client.GetTopicRuntimeProperties(w.ctx, name, nil))
		equal(told.SubscriptionCount, int32(1), "subscriptions")
		equal(told.ScheduledMessageCount, int32(0), "scheduled")
		var listed []string
		for pages := client.NewListTopicsPager(nil); pages.More(); {
			for _, one := range got(pages.NextPage(w.ctx)).Topics {
				listed = append(listed, one.TopicName)
			}
		}
		that(slices.Contains(listed, name), "it is not listed")
	})

	// ADM-22
	administered("a deleted topic deletes its subscriptions", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateTopic(w.ctx, name, nil))
		got(client.CreateSubscription(w.ctx, name, "s", nil))
		got(client.DeleteTopic(w.ctx, name, nil))
		that(got(client.GetSubscription(w.ctx, name, "s", nil)) == nil, "it is there")
	})

	// ADM-34, ADM-31
	administered("a subscription keeps all its properties", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateTopic(w.ctx, name, nil))
		got(client.CreateSubscription(w.ctx, name, "s", &admin.CreateSubscriptionOptions{Properties: &subscription}))
		told := got(client.GetSubscription(w.ctx, name, "s", nil)).SubscriptionProperties
		equal(told, subscription, "what is told")
		told.MaxDeliveryCount = ptr(int32(3))
		equal(*got(client.UpdateSubscription(w.ctx, name, "s", told, nil)).MaxDeliveryCount, int32(3), "deliveries")
	})

	// ADM-23, ADM-35, ADM-46
	administered("subscriptions are listed and counted", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateTopic(w.ctx, name, nil))
		for _, subscription := range []string{"b", "a"} {
			got(client.CreateSubscription(w.ctx, name, subscription, nil))
		}
		w.send(name, "x")
		var listed []string
		for pages := client.NewListSubscriptionsPager(name, nil); pages.More(); {
			for _, one := range got(pages.NextPage(w.ctx)).Subscriptions {
				listed = append(listed, one.TopicName+"/"+one.SubscriptionName)
			}
		}
		equal(listed, []string{name + "/a", name + "/b"}, "subscriptions")
		told := got(client.GetSubscriptionRuntimeProperties(w.ctx, name, "a", nil))
		equal(told.ActiveMessageCount, int32(1), "active")
		equal(told.TotalMessageCount, int64(1), "all")
		got(client.DeleteSubscription(w.ctx, name, "a", nil))
		that(got(client.GetSubscription(w.ctx, name, "a", nil)) == nil, "it is there")
	})

	// ADM-40, ADM-42
	administered("rules are listed, and the default one is replaced", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateTopic(w.ctx, name, nil))
		got(client.CreateSubscription(w.ctx, name, "s", nil))
		list := func() []admin.RuleProperties {
			var found []admin.RuleProperties
			for pages := client.NewListRulesPager(name, "s", nil); pages.More(); {
				found = append(found, got(pages.NextPage(w.ctx)).Rules...)
			}
			return found
		}
		equal(list(), []admin.RuleProperties{{Name: "$Default", Filter: &admin.TrueFilter{}}}, "rules")
		got(client.DeleteRule(w.ctx, name, "s", "$Default", nil))
		none := &admin.CreateRuleOptions{Name: ptr("none"), Filter: &admin.FalseFilter{}}
		got(client.CreateRule(w.ctx, name, "s", none))
		equal(list(), []admin.RuleProperties{{Name: "none", Filter: &admin.FalseFilter{}}}, "rules")
		that(got(client.GetRule(w.ctx, name, "s", "$Default", nil)) == nil, "it is there")
	})

	// ADM-42
	administered("a subscription with a rule of its own", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateTopic(w.ctx, name, nil))
		rule := &admin.RuleProperties{Name: "mine", Filter: &admin.SQLFilter{Expression: "a = 1"}}
		options := &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{DefaultRule: rule}}
		got(client.CreateSubscription(w.ctx, name, "s", options))
		equal(got(client.GetRule(w.ctx, name, "s", "mine", nil)).RuleProperties, *rule, "rule")
	})

	// ADM-41
	administered("a rule in SQL with parameters selects and acts", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateTopic(w.ctx, name, nil))
		got(client.CreateSubscription(w.ctx, name, "s", nil))
		got(client.DeleteRule(w.ctx, name, "s", "$Default", nil))
		at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
		rule := &admin.CreateRuleOptions{
			Name: ptr("r"),
			Filter: &admin.SQLFilter{
				Expression: "colour = @text AND size > @int AND share < @half AND old = @no",
				Parameters: map[string]any{"@text": "red", "@int": int64(7), "@half": 0.5, "@no": false, "@at": at},
			},
			Action: &admin.SQLAction{Expression: "SET seen = @n", Parameters: map[string]any{"@n": int64(3)}},
		}
		got(client.CreateRule(w.ctx, name, "s", rule))
		told := got(client.GetRule(w.ctx, name, "s", "r", nil))
		equal(told.Filter, rule.Filter, "filter")
		equal(told.Action, rule.Action, "action")
		for n, size := range []int64{7, 8} {
			all := map[string]any{"colour": "red", "size": size, "share": 0.25, "old": false}
			w.sendOf(name, azservicebus.Message{ApplicationProperties: all}, fmt.Sprint(n))
		}
		receiver := got(w.client.NewReceiverForSubscription(name, "s", nil))
		message := w.one(receiver)
		equal(string(message.Body), "1", "what comes")
		equal(fmt.Sprint(message.ApplicationProperties["seen"]), "3", "what the action set")
		w.nothing(receiver)
	})

	// ADM-40, TOP-24
	administered("a rule by correlation is changed", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateTopic(w.ctx, name, nil))
		got(client.CreateSubscription(w.ctx, name, "s", nil))
		filter := &admin.CorrelationFilter{
			CorrelationID: ptr("c"), MessageID: ptr("m"), To: ptr("t"), ReplyTo: ptr("r"), Subject: ptr("l"),
			SessionID: ptr("s"), ReplyToSessionID: ptr("z"), ContentType: ptr("text/plain"),
			ApplicationProperties: map[string]any{"colour": "red", "size": int64(7), "share": 0.5, "old": false},
		}
		got(client.CreateRule(w.ctx, name, "s", &admin.CreateRuleOptions{Name: ptr("r"), Filter: filter}))
		told := got(client.GetRule(w.ctx, name, "s", "r", nil)).RuleProperties
		equal(told.Filter, filter, "filter")
		told.Filter = &admin.CorrelationFilter{Subject: ptr("tea")}
		got(client.UpdateRule(w.ctx, name, "s", told))
		equal(got(client.GetRule(w.ctx, name, "s", "r", nil)).Filter, told.Filter, "filter")
	})

	// ADM-43
	administered("an invalid rule is refused", func(w *World, client *admin.Client) {
		name := w.unique()
		got(client.CreateTopic(w.ctx, name, nil))
		got(client.CreateSubscription(w.ctx, name, "s", nil))
		wrong := &admin.CreateRuleOptions{Name: ptr("r"), Filter: &admin.SQLFilter{Expression: "a = = 1"}}
		_, err := client.CreateRule(w.ctx, name, "s", wrong)
		denied(err, 400, "column 5")
		_, err = client.CreateRule(w.ctx, name, "s", &admin.CreateRuleOptions{Name: ptr("$Default")})
		denied(err, 409, "$Default")
	})

	// ADM-45
	administered("the namespace has properties", func(w *World, client *admin.Client) {
		told := got(client.GetNamespaceProperties(w.ctx, nil))
		equal(told.Name, "peeklock", "name")
		equal(told.SKU, "Premium", "tier")
		equal(told.MessagingUnits, ptr(int64(1)), "units")
		that(!told.CreatedTime.IsZero() && !told.ModifiedTime.IsZero(), "%+v", told.NamespaceProperties)
	})

	// ADM-39
	administered("authorization rules are kept", func(w *World, client *admin.Client) {
		name := w.unique()
		rule := admin.AuthorizationRule{
			AccessRights: []admin.AccessRight{admin.AccessRightSend},
			KeyName:      ptr("sender"),
			PrimaryKey:   ptr("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
			SecondaryKey: ptr("AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
		}
		options := &admin.CreateQueueOptions{Properties: &admin.QueueProperties{AuthorizationRules: []admin.AuthorizationRule{rule}}}
		got(client.CreateQueue(w.ctx, name, options))
		told := got(client.GetQueue(w.ctx, name, nil)).AuthorizationRules
		that(len(told) == 1, "%d are told", len(told))
		equal(told[0].KeyName, rule.KeyName, "name")
		equal(told[0].PrimaryKey, rule.PrimaryKey, "key")
		equal(told[0].AccessRights, rule.AccessRights, "rights")
	})

	// ADM-11
	administered("a wrong key is refused", func(w *World, _ *admin.Client) {
		text := strings.Replace(w.broker.secureString("amqp"), "SharedAccessKey=", "SharedAccessKey=x", 1)
		_, err := w.administrator(text).GetQueue(w.ctx, "any", nil)
		denied(err, 401, "")
	})

	// ADM-04
	administered("names may have slashes and any case", func(w *World, client *admin.Client) {
		name := w.unique() + "/Orders-1.a_b"
		got(client.CreateQueue(w.ctx, name, nil))
		that(got(client.GetQueue(w.ctx, strings.ToLower(name), nil)) != nil, "it is not there")
		got(client.DeleteQueue(w.ctx, name, nil))
	})
}
