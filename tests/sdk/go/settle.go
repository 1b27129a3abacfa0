package main

// Settling: all outcomes, delivery counts, locks that end and are renewed.

import (
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func settling() {
	// AMQP-60, AMQP-64
	scenario("an abandoned message returns with a higher count", func(w *World) {
		queue := w.queue()
		w.send(queue, "x")
		receiver := w.receiver(queue)
		for count := range uint32(4) {
			message := w.one(receiver)
			equal(message.DeliveryCount, count+1, "deliveries")
			ok(receiver.AbandonMessage(w.ctx, message, nil))
		}
	})

	// AMQP-63
	scenario("an abandon may change properties", func(w *World) {
		queue := w.queue()
		before := map[string]any{"kept": int64(1), "tries": int64(0)}
		w.sendOf(queue, azservicebus.Message{ApplicationProperties: before}, "x")
		receiver := w.receiver(queue)
		change := &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"tries": int64(1), "why": "tired"}}
		ok(receiver.AbandonMessage(w.ctx, w.one(receiver), change))
		after := map[string]any{"kept": int64(1), "tries": int64(1), "why": "tired"}
		equal(w.one(receiver).ApplicationProperties, after, "properties")
	})

	// RTY-01, RTY-12, RTY-27
	scenario("an abandon may delay the message", func(w *World) {
		queue := w.queue()
		w.send(queue, "later", "soon")
		receiver := w.receiver(queue)
		messages := w.receive(receiver, 2)
		began := time.Now()
		for number, delay := range []any{int64(3_600_000), "1500"} {
			change := map[string]any{"peeklock-delay-ms": delay, "tries": int64(1)}
			options := &azservicebus.AbandonMessageOptions{PropertiesToModify: change}
			ok(receiver.AbandonMessage(w.ctx, messages[number], options))
		}
		kept := map[string]any{"tries": int64(1)}
		again := w.one(receiver)
		that(time.Since(began) >= 1500*time.Millisecond, "it came too soon")
		equal(string(again.Body), "soon", "body")
		equal(again.DeliveryCount, uint32(2), "deliveries")
		equal(again.ApplicationProperties, kept, "properties")
		ok(receiver.CompleteMessage(w.ctx, again, nil))
		delayed := got(receiver.PeekMessages(w.ctx, 10, nil))
		equal(bodies(delayed), []string{"later"}, "what is there")
		equal(delayed[0].State, azservicebus.MessageStateActive, "state")
		equal(delayed[0].ApplicationProperties, kept, "properties")
		until := delayed[0].RawAMQPMessage.MessageAnnotations["x-opt-peeklock-delayed-until"].(time.Time)
		that(until.Sub(began) >= time.Hour-time.Millisecond, "it is delayed until %s", until)
		equal(w.counted(queue, "delayedMessageCount"), 1, "delayed messages")
	})

	// AMQP-63
	scenario("a dead-letter may change properties", func(w *World) {
		queue := w.queue()
		w.send(queue, "x")
		receiver := w.receiver(queue)
		change := &azservicebus.DeadLetterOptions{Reason: ptr("r"), PropertiesToModify: map[string]any{"tries": int64(7)}}
		ok(receiver.DeadLetterMessage(w.ctx, w.one(receiver), change))
		dead := w.one(w.deadLetters(queue))
		equal(dead.ApplicationProperties["tries"], int64(7), "property")
		equal(dead.DeadLetterReason, ptr("r"), "reason")
	})

	// AMQP-64, DLQ-12
	scenario("a message abandoned too often is dead-lettered", func(w *World) {
		queue := w.queue(properties{"maxDeliveryCount": 2})
		w.send(queue, "x")
		receiver := w.receiver(queue)
		for range 2 {
			ok(receiver.AbandonMessage(w.ctx, w.one(receiver), nil))
		}
		w.nothing(receiver)
		equal(w.one(w.deadLetters(queue)).DeadLetterReason, ptr("MaxDeliveryCountExceeded"), "reason")
	})

	// DEF-01, AMQP-84, AMQP-63, AMQP-93
	scenario("a deferred message is received by its number", func(w *World) {
		queue := w.queue()
		w.send(queue, "x")
		receiver := w.receiver(queue)
		message := w.one(receiver)
		change := &azservicebus.DeferMessageOptions{PropertiesToModify: map[string]any{"later": true}}
		ok(receiver.DeferMessage(w.ctx, message, change))
		w.nothing(receiver)
		numbers := []int64{*message.SequenceNumber}
		again := got(receiver.ReceiveDeferredMessages(w.ctx, numbers, nil))
		equal(bodies(again), []string{"x"}, "what was received")
		equal(again[0].State, azservicebus.MessageStateDeferred, "state")
		equal(again[0].ApplicationProperties["later"], true, "property")
		ok(receiver.CompleteMessage(w.ctx, again[0], nil))
		_, err := receiver.ReceiveDeferredMessages(w.ctx, numbers, nil)
		refused(err, azservicebus.CodeNotFound)
		equal(w.counted(queue, "totalMessageCount"), 0, "messages left")
	})

	// AMQP-84
	scenario("a deferred message is dead-lettered, deferred and abandoned", func(w *World) {
		queue := w.queue()
		w.send(queue, "a", "b")
		receiver := w.receiver(queue)
		var numbers []int64
		for _, message := range w.receive(receiver, 2) {
			numbers = append(numbers, *message.SequenceNumber)
			ok(receiver.DeferMessage(w.ctx, message, nil))
		}
		both := got(receiver.ReceiveDeferredMessages(w.ctx, numbers, nil))
		ok(receiver.DeferMessage(w.ctx, both[0], nil))
		ok(receiver.AbandonMessage(w.ctx, both[1], nil))
		w.nothing(receiver)
		both = got(receiver.ReceiveDeferredMessages(w.ctx, numbers, nil))
		equal(bodies(both), []string{"a", "b"}, "what was received")
		ok(receiver.DeadLetterMessage(w.ctx, both[0], &azservicebus.DeadLetterOptions{Reason: ptr("r")}))
		ok(receiver.CompleteMessage(w.ctx, both[1], nil))
		equal(w.counted(queue, "deadLetterMessageCount"), 1, "dead letters")
		equal(w.counted(queue, "totalMessageCount"), 1, "messages")
	})

	// DEF-02
	scenario("a deferred message is received and deleted by its number", func(w *World) {
		queue := w.queue()
		w.send(queue, "x")
		receiver := w.receiver(queue)
		message := w.one(receiver)
		ok(receiver.DeferMessage(w.ctx, message, nil))
		options := &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
		taker := got(w.client.NewReceiverForQueue(queue, options))
		taken := got(taker.ReceiveDeferredMessages(w.ctx, []int64{*message.SequenceNumber}, nil))
		equal(bodies(taken), []string{"x"}, "what was received")
		equal(w.counted(queue, "totalMessageCount"), 0, "messages left")
	})

	// AMQP-62, SET-14
	scenario("a lock that has ended settles nothing", func(w *World) {
		queue := w.queue(properties{"lockDuration": "PT1S"})
		w.send(queue, "x")
		receiver := w.receiver(queue)
		message := w.one(receiver)
		again := w.one(receiver)
		equal(again.DeliveryCount, uint32(2), "deliveries")
		refused(receiver.CompleteMessage(w.ctx, message, nil), azservicebus.CodeLockLost)
		ok(receiver.CompleteMessage(w.ctx, again, nil))
	})

	// SET-18, AMQP-82
	scenario("a renewed lock lasts longer", func(w *World) {
		queue := w.queue(properties{"lockDuration": "PT4S"})
		w.send(queue, "x")
		receiver := w.receiver(queue)
		message := w.one(receiver)
		for range 3 {
			time.Sleep(2 * time.Second)
			before := *message.LockedUntil
			ok(receiver.RenewMessageLock(w.ctx, message, nil))
			that(message.LockedUntil.After(before), "it ends at %s, as before", before)
		}
		ok(receiver.CompleteMessage(w.ctx, message, nil))
		equal(w.counted(queue, "activeMessageCount"), 0, "messages left")
	})

	// AMQP-62
	scenario("renewing a lock that has ended is refused", func(w *World) {
		queue := w.queue(properties{"lockDuration": "PT1S"})
		w.send(queue, "x")
		receiver := w.receiver(queue)
		message := w.one(receiver)
		time.Sleep(1300 * time.Millisecond)
		refused(receiver.RenewMessageLock(w.ctx, message, nil), azservicebus.CodeLockLost)
	})

	// AMQP-60, AMQP-68
	scenario("a message is settled once", func(w *World) {
		queue := w.queue()
		w.send(queue, "x")
		receiver := w.receiver(queue)
		message := w.one(receiver)
		ok(receiver.CompleteMessage(w.ctx, message, nil))
		// The SDK either refuses itself or asks the broker. In both cases nothing changes.
		_ = receiver.AbandonMessage(w.ctx, message, nil)
		equal(w.counted(queue, "totalMessageCount"), 0, "messages left")
	})

	// AMQP-62
	scenario("a message is settled after its receiver was closed by another", func(w *World) {
		queue := w.queue()
		w.send(queue, "x")
		receiver := w.receiver(queue)
		message := w.one(receiver)
		ok(receiver.Close(w.ctx))
		// Without its link the message is settled over the management node, with its lock token.
		ok(w.receiver(queue).CompleteMessage(w.ctx, message, nil))
		equal(w.counted(queue, "totalMessageCount"), 0, "messages left")
	})

	// AMQP-60
	scenario("a hundred deliveries are settled in any order", func(w *World) {
		queue := w.queue()
		sender := w.sender(queue)
		batch := got(sender.NewMessageBatch(w.ctx, nil))
		for n := range 100 {
			ok(batch.AddMessage(text(fmt.Sprint(n)), nil))
		}
		ok(sender.SendMessageBatch(w.ctx, batch, nil))
		receiver := w.receiver(queue)
		messages := w.receive(receiver, 100)
		var even []string
		for n := 99; n > 0; n -= 2 {
			ok(receiver.CompleteMessage(w.ctx, messages[n], nil))
		}
		for n := 0; n < 100; n += 2 {
			even = append(even, string(messages[n].Body))
			ok(receiver.AbandonMessage(w.ctx, messages[n], nil))
		}
		equal(bodies(w.receive(receiver, 50)), even, "what comes again")
	})

	// FWD-01, FWD-26
	scenario("dead letters are forwarded with their source", func(w *World) {
		grave := w.queue()
		queue := w.queue(properties{"forwardDeadLetteredMessagesTo": grave})
		w.send(queue, "x")
		receiver := w.receiver(queue)
		ok(receiver.DeadLetterMessage(w.ctx, w.one(receiver), &azservicebus.DeadLetterOptions{Reason: ptr("r")}))
		dead := w.one(w.receiver(grave))
		that(strings.EqualFold(*dead.DeadLetterSource, queue), "it comes from %s", *dead.DeadLetterSource)
	})
}
