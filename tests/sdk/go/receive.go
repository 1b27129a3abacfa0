package main

// Receiving: modes, credit, waiting, peeking, sub-queues, competing receivers.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func receiving() {
	// AMQP-55, RCV-02
	scenario("receive and delete removes messages", func(w *World) {
		queue := w.queue()
		w.send(queue, "one", "two")
		options := &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
		receiver := got(w.client.NewReceiverForQueue(queue, options))
		message := w.one(receiver)
		equal(string(message.Body), "one", "body")
		refused(receiver.CompleteMessage(w.ctx, message, nil), "")
		ok(receiver.Close(w.ctx))
		equal(w.drain(queue), []string{"two"}, "what is there")
	})

	// AMQP-50
	scenario("a receive waits for the timeout of its caller", func(w *World) {
		queue := w.queue()
		receiver := w.receiver(queue)
		began := time.Now()
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		messages, err := receiver.ReceiveMessages(ctx, 5, nil)
		that(len(messages) == 0 && errors.Is(err, context.DeadlineExceeded), "%d messages, %v", len(messages), err)
		took := time.Since(began)
		that(took >= 900*time.Millisecond && took < 10*time.Second, "it took %s", took)
	})

	// AMQP-48, AMQP-64
	scenario("messages after the end of a receive are released uncounted", func(w *World) {
		queue := w.queue()
		receiver := w.receiver(queue)
		w.nothing(receiver)
		// The credit of that call remains; the SDK releases messages that arrive for it, again and again.
		w.send(queue, "x")
		other := w.receiver(queue)
		message := w.one(other)
		equal(message.DeliveryCount, uint32(1), "deliveries")
		ok(other.CompleteMessage(w.ctx, message, nil))
	})

	// AMQP-58
	scenario("messages arrive in the order of their sends", func(w *World) {
		queue := w.queue()
		sender := w.sender(queue)
		batch := got(sender.NewMessageBatch(w.ctx, nil))
		var all []string
		for n := range 100 {
			all = append(all, fmt.Sprint(n))
			ok(batch.AddMessage(text(all[n]), nil))
		}
		ok(sender.SendMessageBatch(w.ctx, batch, nil))
		receiver := w.receiver(queue)
		messages := w.receive(receiver, 100)
		equal(bodies(messages), all, "bodies")
		for _, message := range messages {
			ok(receiver.CompleteMessage(w.ctx, message, nil))
		}
		equal(w.counted(queue, "activeMessageCount"), 0, "messages left")
	})

	// AMQP-59
	scenario("two receivers share a queue", func(w *World) {
		queue := w.queue()
		found := make([]string, 2)
		errs := make([]error, 2)
		var both sync.WaitGroup
		for n := range 2 {
			receiver := w.receiver(queue)
			both.Go(func() {
				messages, err := receiver.ReceiveMessages(w.ctx, 1, nil)
				if errs[n] = err; err == nil {
					found[n] = string(messages[0].Body)
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		w.send(queue, "a", "b")
		both.Wait()
		ok(errors.Join(errs...))
		slices.Sort(found)
		equal(found, []string{"a", "b"}, "what was received")
	})

	// AMQP-56
	scenario("a delivery has the properties of the broker", func(w *World) {
		queue := w.queue()
		w.send(queue, "x")
		message := w.one(w.receiver(queue))
		that(*message.SequenceNumber > 0, "it has no number")
		that(message.EnqueuedSequenceNumber == nil, "a message that was never moved has a first number")
		equal(message.DeliveryCount, uint32(1), "deliveries")
		equal(message.State, azservicebus.MessageStateActive, "state")
		that(time.Since(*message.EnqueuedTime).Abs() < 30*time.Second, "enqueued at %s", message.EnqueuedTime)
		that(message.LockedUntil.After(*message.EnqueuedTime), "locked until %s", message.LockedUntil)
		that(message.LockToken != [16]byte{}, "it has no lock token")
	})

	// AMQP-33, DLQ-03, AMQP-57
	scenario("the dead-letter queue is received from", func(w *World) {
		queue := w.queue()
		w.send(queue, "x")
		receiver := w.receiver(queue)
		why := &azservicebus.DeadLetterOptions{Reason: ptr("why"), ErrorDescription: ptr("because")}
		ok(receiver.DeadLetterMessage(w.ctx, w.one(receiver), why))
		dead := w.deadLetters(queue)
		message := w.one(dead)
		equal(message.DeadLetterReason, ptr("why"), "reason")
		equal(message.DeadLetterErrorDescription, ptr("because"), "description")
		ok(dead.CompleteMessage(w.ctx, message, nil))
		w.nothing(dead)
	})

	// AMQP-33, FWD-15
	scenario("the transfer dead-letter queue is received from", func(w *World) {
		target := w.queue()
		queue := w.queue(properties{"forwardTo": target})
		w.ask("PATCH", "queues/"+target, properties{"status": "Disabled"})
		w.send(queue, "x")
		options := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueTransfer}
		receiver := got(w.client.NewReceiverForQueue(queue, options))
		message := w.one(receiver)
		equal(string(message.Body), "x", "body")
		equal(message.DeadLetterReason, ptr("MessagingEntityDisabled"), "reason")
		ok(receiver.CompleteMessage(w.ctx, message, nil))
	})

	// AMQP-33, DLQ-03
	scenario("a subscription has a dead-letter queue", func(w *World) {
		topic := w.topic("s")
		w.send(topic, "x")
		receiver := got(w.client.NewReceiverForSubscription(topic, "s", nil))
		ok(receiver.DeadLetterMessage(w.ctx, w.one(receiver), nil))
		options := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
		dead := got(w.client.NewReceiverForSubscription(topic, "s", options))
		equal(string(w.one(dead).Body), "x", "body")
	})

	// AMQP-30
	scenario("one connection serves many receivers", func(w *World) {
		for n := range 8 {
			queue := w.queue()
			w.send(queue, fmt.Sprint(n))
			receiver := w.receiver(queue)
			message := w.one(receiver)
			equal(string(message.Body), fmt.Sprint(n), "body")
			ok(receiver.CompleteMessage(w.ctx, message, nil))
		}
	})

	// AMQP-39, SET-21
	scenario("locks outlive the receiver that closes in order", func(w *World) {
		queue := w.queue(properties{"lockDuration": "PT3S"})
		w.send(queue, "x")
		receiver := w.receiver(queue)
		w.one(receiver)
		ok(receiver.Close(w.ctx))
		other := w.receiver(queue)
		w.nothing(other)
		message := w.one(other)
		equal(message.DeliveryCount, uint32(2), "deliveries")
		ok(other.CompleteMessage(w.ctx, message, nil))
	})

	// PEK-01, PEK-04, AMQP-83
	scenario("a peek removes nothing", func(w *World) {
		queue := w.queue()
		w.send(queue, "a", "b", "c")
		receiver := w.receiver(queue)
		seen := got(receiver.PeekMessages(w.ctx, 10, nil))
		equal(bodies(seen), []string{"a", "b", "c"}, "what is seen")
		equal(bodies(got(receiver.PeekMessages(w.ctx, 10, nil))), []string{}, "what is seen behind it")
		from := &azservicebus.PeekMessagesOptions{FromSequenceNumber: seen[1].SequenceNumber}
		equal(bodies(got(receiver.PeekMessages(w.ctx, 10, from))), []string{"b", "c"}, "what is seen from the second on")
		for _, message := range w.receive(receiver, 3) {
			equal(message.DeliveryCount, uint32(1), "deliveries")
		}
	})

	// AMQP-56, PEK-02
	scenario("a peek sees scheduled, deferred and locked messages", func(w *World) {
		queue := w.queue()
		w.send(queue, "deferred", "locked")
		receiver := w.receiver(queue)
		ok(receiver.DeferMessage(w.ctx, w.one(receiver), nil))
		w.one(receiver)
		got(w.sender(queue).ScheduleMessages(w.ctx, []*azservicebus.Message{text("scheduled")}, time.Now().Add(time.Hour), nil))
		states := map[string]azservicebus.MessageState{}
		for _, message := range got(w.receiver(queue).PeekMessages(w.ctx, 10, nil)) {
			states[string(message.Body)] = message.State
		}
		equal(states, map[string]azservicebus.MessageState{
			"deferred":  azservicebus.MessageStateDeferred,
			"locked":    azservicebus.MessageStateActive,
			"scheduled": azservicebus.MessageStateScheduled,
		}, "what is seen")
	})

	// EXP-20, DLQ-12
	scenario("an expired message is dead-lettered if configured", func(w *World) {
		queue := w.queue(properties{"deadLetteringOnMessageExpiration": true})
		w.sendOf(queue, azservicebus.Message{TimeToLive: ptr(time.Second)}, "x")
		time.Sleep(1100 * time.Millisecond)
		// A receive detects the expiry (EXP-35).
		w.nothing(w.receiver(queue))
		equal(w.one(w.deadLetters(queue)).DeadLetterReason, ptr("TTLExpiredException"), "reason")
	})
}
