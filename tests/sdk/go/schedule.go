package main

// Scheduling and cancelling.

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func scheduling() {
	list := func(all ...string) []*azservicebus.Message {
		var messages []*azservicebus.Message
		for _, body := range all {
			messages = append(messages, text(body))
		}
		return messages
	}

	// SCH-01, AMQP-82
	scenario("a scheduled message arrives at its time", func(w *World) {
		queue := w.queue()
		at := time.Now().Add(3 * time.Second)
		numbers := got(w.sender(queue).ScheduleMessages(w.ctx, list("x"), at, nil))
		that(len(numbers) == 1 && numbers[0] > 0, "the numbers are %v", numbers)
		equal(w.counted(queue, "scheduledMessageCount"), 1, "scheduled")
		message := w.one(w.receiver(queue))
		that(!message.EnqueuedTime.Before(at.Truncate(time.Millisecond)), "it came at %s, not %s", message.EnqueuedTime, at)
	})

	// SCH-01
	scenario("several messages are scheduled at once", func(w *World) {
		queue := w.queue()
		at := time.Now().Add(800 * time.Millisecond)
		numbers := got(w.sender(queue).ScheduleMessages(w.ctx, list("a", "b", "c"), at, nil))
		that(len(numbers) == 3 && numbers[0] != numbers[1] && numbers[1] != numbers[2], "the numbers are %v", numbers)
		equal(bodies(w.receive(w.receiver(queue), 3)), []string{"a", "b", "c"}, "what comes")
	})

	// SCH-04, SCH-05, AMQP-82
	scenario("a scheduled message is cancelled", func(w *World) {
		queue := w.queue()
		sender := w.sender(queue)
		numbers := got(sender.ScheduleMessages(w.ctx, list("a", "b"), time.Now().Add(time.Hour), nil))
		ok(sender.CancelScheduledMessages(w.ctx, numbers[:1], nil))
		equal(w.counted(queue, "scheduledMessageCount"), 1, "scheduled")
		ok(sender.CancelScheduledMessages(w.ctx, numbers[1:], nil))
		refused(sender.CancelScheduledMessages(w.ctx, numbers[1:], nil), azservicebus.CodeNotFound)
		equal(w.counted(queue, "totalMessageCount"), 0, "messages")
	})

	// SCH-02, AMQP-44
	scenario("a message may name its time itself", func(w *World) {
		queue := w.queue()
		at := time.Now().Add(time.Second).Truncate(time.Millisecond).UTC()
		w.sendOf(queue, azservicebus.Message{ScheduledEnqueueTime: &at}, "x")
		message := w.one(w.receiver(queue))
		that(!message.EnqueuedTime.Before(at), "it came at %s, not %s", message.EnqueuedTime, at)
		that(message.ScheduledEnqueueTime.Equal(at), "it was to come at %s, not %s", message.ScheduledEnqueueTime, at)
	})

	// SCH-06
	scenario("a past time means immediately", func(w *World) {
		queue := w.queue()
		got(w.sender(queue).ScheduleMessages(w.ctx, list("x"), time.Now().Add(-time.Hour), nil))
		equal(string(w.one(w.receiver(queue)).Body), "x", "body")
	})

	// SCH-10
	scenario("a topic schedules for its subscriptions", func(w *World) {
		topic := w.topic("s")
		got(w.sender(topic).ScheduleMessages(w.ctx, list("x"), time.Now().Add(800*time.Millisecond), nil))
		receiver := got(w.client.NewReceiverForSubscription(topic, "s", nil))
		equal(string(w.one(receiver).Body), "x", "body")
	})

	// AMQP-82
	scenario("an annotated message is scheduled", func(w *World) {
		queue := w.queue()
		message := &azservicebus.AMQPAnnotatedMessage{Body: azservicebus.AMQPAnnotatedMessageBody{Value: int64(7)}}
		all := []*azservicebus.AMQPAnnotatedMessage{message}
		got(w.sender(queue).ScheduleAMQPAnnotatedMessages(w.ctx, all, time.Now().Add(500*time.Millisecond), nil))
		equal(w.one(w.receiver(queue)).RawAMQPMessage.Body.Value, int64(7), "value")
	})
}
