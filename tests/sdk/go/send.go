package main

// Sending: bodies, properties, batches, sizes.

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func sending() {
	// AMQP-40, AMQP-41
	scenario("a message arrives as sent", func(w *World) {
		queue := w.queue()
		w.send(queue, "two coffees")
		receiver := w.receiver(queue)
		message := w.one(receiver)
		equal(string(message.Body), "two coffees", "body")
		ok(receiver.CompleteMessage(w.ctx, message, nil))
		equal(w.counted(queue, "totalMessageCount"), 0, "messages left")
	})

	// AMQP-44, AMQP-45
	scenario("broker properties are kept", func(w *World) {
		queue := w.queue()
		sent := &azservicebus.Message{
			Body:             []byte{0, 1, 255},
			MessageID:        ptr("order-1"),
			CorrelationID:    ptr("c-1"),
			Subject:          ptr("tea"),
			To:               ptr("kitchen"),
			ReplyTo:          ptr("waiter"),
			ReplyToSessionID: ptr("table-7"),
			ContentType:      ptr("application/octet-stream"),
			TimeToLive:       ptr(10 * time.Minute),
			PartitionKey:     ptr("p"),
		}
		ok(w.sender(queue).SendMessage(w.ctx, sent, nil))
		message := w.one(w.receiver(queue))
		equal(message.Body, sent.Body, "body")
		equal(message.MessageID, *sent.MessageID, "message id")
		equal(message.CorrelationID, sent.CorrelationID, "correlation id")
		equal(message.Subject, sent.Subject, "subject")
		equal(message.To, sent.To, "to")
		equal(message.ReplyTo, sent.ReplyTo, "reply to")
		equal(message.ReplyToSessionID, sent.ReplyToSessionID, "reply to session")
		equal(message.ContentType, sent.ContentType, "content type")
		equal(message.TimeToLive, sent.TimeToLive, "time to live")
		equal(message.PartitionKey, sent.PartitionKey, "partition key")
		equal(message.ExpiresAt.Sub(*message.EnqueuedTime), 10*time.Minute, "life")
	})

	// AMQP-45
	scenario("application properties keep their types", func(w *World) {
		queue := w.queue()
		sent := map[string]any{
			"text": "zwölf", "yes": true, "nothing": nil,
			"i8": int8(-8), "i16": int16(-1600), "i32": int32(-320_000), "i64": int64(-1 << 60),
			"u8": uint8(200), "u16": uint16(60_000), "u32": uint32(4_000_000_000), "u64": uint64(1 << 63),
			"f32": float32(1.5), "f64": 0.1,
			"at": time.UnixMilli(1_777_636_800_123).UTC(),
		}
		ok(w.sender(queue).SendMessage(w.ctx, &azservicebus.Message{ApplicationProperties: sent}, nil))
		message := w.one(w.receiver(queue))
		for name, value := range sent {
			found := message.ApplicationProperties[name]
			if at, is := found.(time.Time); is {
				found = at.UTC()
			}
			equal(found, value, name)
		}
		equal(len(message.ApplicationProperties), len(sent), "number of properties")
	})

	// AMQP-44
	scenario("a message without an id gets one", func(w *World) {
		queue := w.queue()
		w.send(queue, "x")
		receiver := w.receiver(queue)
		message := w.one(receiver)
		that(message.MessageID != "", "it has none")
		ok(receiver.CompleteMessage(w.ctx, message, nil))
	})

	// AMQP-45
	scenario("bodies of data, values and sequences", func(w *World) {
		queue := w.queue()
		sender := w.sender(queue)
		all := []azservicebus.AMQPAnnotatedMessageBody{
			{Data: [][]byte{[]byte("one"), []byte("two")}},
			{Value: "text"},
			{Value: int64(-7)},
			{Value: map[string]any{"a": int64(1)}},
			{Sequence: [][]any{{int64(1), "zwei"}, {true}}},
		}
		for _, body := range all {
			ok(sender.SendAMQPAnnotatedMessage(w.ctx, &azservicebus.AMQPAnnotatedMessage{Body: body}, nil))
		}
		for n, message := range w.receive(w.receiver(queue), len(all)) {
			equal(message.RawAMQPMessage.Body, all[n], fmt.Sprintf("body %d", n))
		}
	})

	// AMQP-45, AMQP-102
	scenario("sections that only AMQP has are kept", func(w *World) {
		queue := w.queue()
		sent := &azservicebus.AMQPAnnotatedMessage{
			Header: &azservicebus.AMQPAnnotatedMessageHeader{Priority: 7, Durable: true},
			Properties: &azservicebus.AMQPAnnotatedMessageProperties{
				MessageID:       uint64(42),
				CorrelationID:   []byte{1, 2, 3},
				UserID:          []byte("me"),
				ContentEncoding: ptr("gzip"),
				GroupSequence:   ptr(uint32(9)),
			},
			MessageAnnotations: map[any]any{"x-mine": "kept"},
			Footer:             map[any]any{"sum": int64(1)},
			Body:               azservicebus.AMQPAnnotatedMessageBody{Value: "x"},
		}
		ok(w.sender(queue).SendAMQPAnnotatedMessage(w.ctx, sent, nil))
		found := w.one(w.receiver(queue)).RawAMQPMessage
		equal(found.Properties.MessageID, uint64(42), "message id")
		equal(found.Properties.CorrelationID, []byte{1, 2, 3}, "correlation id")
		equal(found.Properties.UserID, []byte("me"), "user id")
		equal(found.Properties.ContentEncoding, ptr("gzip"), "content encoding")
		equal(found.Properties.GroupSequence, ptr(uint32(9)), "group sequence")
		equal(found.MessageAnnotations["x-mine"], "kept", "annotation")
		equal(found.Footer, map[any]any{"sum": int64(1)}, "footer")
	})

	// AMQP-42, AMQP-43
	scenario("a batch accepts fitting messages and is stored as a whole", func(w *World) {
		queue := w.queue()
		sender := w.sender(queue)
		batch := got(sender.NewMessageBatch(w.ctx, nil))
		for {
			err := batch.AddMessage(&azservicebus.Message{Body: make([]byte, 10_000)}, nil)
			if errors.Is(err, azservicebus.ErrMessageTooLarge) {
				break
			}
			ok(err)
		}
		count := int(batch.NumMessages())
		that(count > 90 && count < 106, "%d messages of 10,000 bytes fit", count)
		ok(sender.SendMessageBatch(w.ctx, batch, nil))
		equal(w.counted(queue, "activeMessageCount"), count, "messages")
	})

	// AMQP-42
	scenario("a batch keeps the properties of each", func(w *World) {
		queue := w.queue()
		sender := w.sender(queue)
		batch := got(sender.NewMessageBatch(w.ctx, &azservicebus.MessageBatchOptions{MaxBytes: 20_000}))
		for n := range 3 {
			ok(batch.AddMessage(&azservicebus.Message{
				Body:                  fmt.Appendf(nil, "body %d", n),
				MessageID:             ptr(fmt.Sprint("m", n)),
				ApplicationProperties: map[string]any{"n": int64(n)},
			}, nil))
		}
		ok(sender.SendMessageBatch(w.ctx, batch, nil))
		for n, message := range w.receive(w.receiver(queue), 3) {
			equal(string(message.Body), fmt.Sprint("body ", n), "body")
			equal(message.MessageID, fmt.Sprint("m", n), "message id")
			equal(message.ApplicationProperties["n"], int64(n), "property")
		}
	})

	// AMQP-43
	scenario("a message over the limit is refused and the link continues", func(w *World) {
		queue := w.queue()
		sender := w.sender(queue)
		err := sender.SendMessage(w.ctx, &azservicebus.Message{Body: make([]byte, 1<<20)}, nil)
		that(errors.Is(err, azservicebus.ErrMessageTooLarge), "it ended with %v", err)
		batch := got(sender.NewMessageBatch(w.ctx, &azservicebus.MessageBatchOptions{MaxBytes: 1_000}))
		err = batch.AddMessage(&azservicebus.Message{Body: make([]byte, 2_000)}, nil)
		that(errors.Is(err, azservicebus.ErrMessageTooLarge), "it ended with %v", err)
		ok(sender.SendMessage(w.ctx, text("small"), nil))
		equal(w.drain(queue), []string{"small"}, "what is there")
	})

	// AMQP-31, AMQP-43
	scenario("a message of many frames arrives whole", func(w *World) {
		queue := w.queue()
		body := bytes.Repeat([]byte("0123456789abcdef!"), 58_000)
		sender := w.sender(queue)
		for range 3 {
			ok(sender.SendMessage(w.ctx, &azservicebus.Message{Body: body}, nil))
		}
		for _, message := range w.receive(w.receiver(queue), 3) {
			that(bytes.Equal(message.Body, body), "the body differs")
		}
	})

	// AMQP-90, AMQP-36
	scenario("an absent queue is named", func(w *World) {
		err := w.sender("nowhere").SendMessage(w.ctx, text("x"), nil)
		refused(err, azservicebus.CodeNotFound)
		that(strings.Contains(err.Error(), "nowhere"), "%v", err)
		_, err = w.receiver("nowhere").ReceiveMessages(w.ctx, 1, nil)
		refused(err, azservicebus.CodeNotFound)
	})

	// AMQP-46, AMQP-79
	scenario("a disabled queue refuses until it is enabled again", func(w *World) {
		queue := w.queue(properties{"status": "SendDisabled"})
		sender := w.sender(queue)
		err := sender.SendMessage(w.ctx, text("x"), nil)
		refusedWith(err, "com.microsoft:entity-disabled")
		w.ask("PATCH", "queues/"+queue, properties{"status": "Active"})
		ok(sender.SendMessage(w.ctx, text("x"), nil))
		equal(w.drain(queue), []string{"x"}, "what is there")
	})

	// AMQP-79
	scenario("a queue disabled under a sender accepts again when it is enabled", func(w *World) {
		queue := w.queue()
		sender := w.sender(queue)
		ok(sender.SendMessage(w.ctx, text("before"), nil))
		w.ask("PATCH", "queues/"+queue, properties{"status": "SendDisabled"})
		refused(sender.SendMessage(w.ctx, text("meanwhile"), nil), "")
		w.ask("PATCH", "queues/"+queue, properties{"status": "Active"})
		ok(sender.SendMessage(w.ctx, text("after"), nil))
		equal(w.drain(queue), []string{"before", "after"}, "what is there")
	})

	// AMQP-46, QUO-05
	scenario("a full queue refuses", func(w *World) {
		queue := w.queue(properties{"maxSizeInMegabytes": 1})
		sender := w.sender(queue)
		var err error
		for n := 0; n < 8 && err == nil; n++ {
			err = sender.SendMessage(w.ctx, &azservicebus.Message{Body: make([]byte, 400_000)}, nil)
		}
		refusedWith(err, "amqp:resource-limit-exceeded")
	})

	// DUP-01
	scenario("a duplicate is accepted and stored once", func(w *World) {
		queue := w.queue(properties{"requiresDuplicateDetection": true})
		w.sendOf(queue, azservicebus.Message{MessageID: ptr("same")}, "first", "second")
		equal(w.drain(queue), []string{"first"}, "what is there")
	})

	// TOP-01
	scenario("a topic gives each subscription a copy", func(w *World) {
		topic := w.topic("a", "b")
		w.send(topic, "one", "two")
		for _, subscription := range []string{"a", "b"} {
			receiver := got(w.client.NewReceiverForSubscription(topic, subscription, nil))
			messages := w.receive(receiver, 2)
			equal(bodies(messages), []string{"one", "two"}, subscription)
			for _, message := range messages {
				ok(receiver.CompleteMessage(w.ctx, message, nil))
			}
		}
	})

	// AMQP-33
	scenario("names may have slashes and any case", func(w *World) {
		queue := w.queue()
		w.ask("PUT", "queues/"+queue+"%2Fdeep%2FName", properties{})
		w.send(queue+"/deep/name", "x")
		message := w.one(w.receiver(strings.ToUpper(queue) + "/DEEP/NAME"))
		equal(string(message.Body), "x", "body")
	})

	// AMQP-41
	scenario("many sends at the same time are all confirmed", func(w *World) {
		queue := w.queue()
		sender := w.sender(queue)
		errs := make([]error, 300)
		var all sync.WaitGroup
		for n := range errs {
			all.Go(func() { errs[n] = sender.SendMessage(w.ctx, text(fmt.Sprint(n)), nil) })
		}
		all.Wait()
		ok(errors.Join(errs...))
		seen := map[string]bool{}
		for _, body := range w.drain(queue) {
			seen[body] = true
		}
		equal(len(seen), 300, "messages")
	})

	// AMQP-46
	scenario("a message without session is refused where one is required", func(w *World) {
		queue := w.queue(properties{"requiresSession": true})
		sender := got(w.once(w.broker.connectionString()).NewSender(queue, nil))
		err := sender.SendMessage(w.ctx, text("x"), nil)
		refused(err, "")
		that(strings.Contains(strings.ToLower(err.Error()), "session"), "%v", err)
	})

	// AMQP-56
	scenario("a received message can be sent again", func(w *World) {
		queue := w.queue()
		w.sendOf(queue, azservicebus.Message{Subject: ptr("tea"), ApplicationProperties: map[string]any{"n": int64(1)}}, "x")
		receiver := w.receiver(queue)
		message := w.one(receiver)
		ok(w.sender(queue).SendMessage(w.ctx, message.Message(), nil))
		ok(receiver.CompleteMessage(w.ctx, message, nil))
		again := w.one(receiver)
		that(reflect.DeepEqual(again.ApplicationProperties, message.ApplicationProperties), "properties differ")
		equal(again.MessageID, message.MessageID, "message id")
		that(*again.SequenceNumber > *message.SequenceNumber, "it has the number of the first")
	})
}
