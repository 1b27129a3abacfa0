package main

// Sessions: by name and next available, state, locks, order.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// accept holds a session of a queue.
func (w *World) accept(queue, session string) *azservicebus.SessionReceiver {
	return got(w.client.AcceptSessionForQueue(w.ctx, queue, session, nil))
}

func (w *World) sendTo(queue, session string, bodies ...string) {
	w.sendOf(queue, azservicebus.Message{SessionID: &session}, bodies...)
}

func sessions() {
	required := properties{"requiresSession": true}

	// AMQP-70, AMQP-71, AMQP-75
	scenario("a session is received by its name", func(w *World) {
		queue := w.queue(required)
		w.sendTo(queue, "a", "a1", "a2")
		w.sendTo(queue, "b", "b1")
		receiver := w.accept(queue, "a")
		equal(receiver.SessionID(), "a", "session")
		that(receiver.LockedUntil().After(time.Now()), "its lock has ended")
		messages := w.receive(receiver, 2)
		equal(bodies(messages), []string{"a1", "a2"}, "bodies")
		for _, message := range messages {
			equal(message.SessionID, ptr("a"), "session")
			ok(receiver.CompleteMessage(w.ctx, message, nil))
		}
		w.nothing(receiver)
	})

	// AMQP-73
	scenario("the next session that has messages is given", func(w *World) {
		queue := w.queue(required)
		w.sendTo(queue, "b", "b1")
		receiver := got(w.client.AcceptNextSessionForQueue(w.ctx, queue, nil))
		equal(receiver.SessionID(), "b", "session")
		ok(receiver.CompleteMessage(w.ctx, w.one(receiver), nil))
	})

	// AMQP-73
	scenario("without a session accepting times out", func(w *World) {
		queue := w.queue(required)
		ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
		defer cancel()
		_, err := w.client.AcceptNextSessionForQueue(ctx, queue, nil)
		// The SDK leaves at most 20 ms of its two seconds for the answer, and may give up first.
		if !errors.Is(err, context.DeadlineExceeded) {
			refused(err, azservicebus.CodeTimeout)
		}
		// No earlier receiver waits any more that could get the session.
		w.sendTo(queue, "late", "x")
		equal(w.accept(queue, "late").SessionID(), "late", "session")
	})

	// AMQP-73
	scenario("a session is given to a waiting receiver", func(w *World) {
		queue := w.queue(required)
		type accepted struct {
			receiver *azservicebus.SessionReceiver
			err      error
		}
		accepting := make(chan accepted)
		go func() {
			receiver, err := w.client.AcceptNextSessionForQueue(w.ctx, queue, nil)
			accepting <- accepted{receiver, err}
		}()
		time.Sleep(500 * time.Millisecond)
		w.sendTo(queue, "late", "x")
		given := <-accepting
		ok(given.err)
		equal(given.receiver.SessionID(), "late", "session")
		equal(string(w.one(given.receiver).Body), "x", "body")
	})

	// AMQP-72
	scenario("a session has one receiver", func(w *World) {
		queue := w.queue(required)
		receiver := w.accept(queue, "a")
		other := w.once(w.broker.connectionString())
		_, err := other.AcceptSessionForQueue(w.ctx, queue, "a", nil)
		refusedWith(err, "com.microsoft:session-cannot-be-locked")
		ok(receiver.Close(w.ctx))
		equal(got(other.AcceptSessionForQueue(w.ctx, queue, "a", nil)).SessionID(), "a", "session")
	})

	// AMQP-39, SES-31
	scenario("unsettled messages return when the session is closed", func(w *World) {
		queue := w.queue(required)
		w.sendTo(queue, "a", "1", "2", "3")
		receiver := w.accept(queue, "a")
		ok(receiver.CompleteMessage(w.ctx, w.receive(receiver, 2)[0], nil))
		ok(receiver.Close(w.ctx))
		messages := w.receive(w.accept(queue, "a"), 2)
		equal(bodies(messages), []string{"2", "3"}, "bodies")
		for _, message := range messages {
			equal(message.DeliveryCount, uint32(1), "deliveries")
		}
	})

	// SES-24, AMQP-82
	scenario("a session has a state", func(w *World) {
		queue := w.queue(required)
		receiver := w.accept(queue, "a")
		equal(got(receiver.GetSessionState(w.ctx, nil)), []byte(nil), "state")
		ok(receiver.SetSessionState(w.ctx, []byte("half way"), nil))
		equal(string(got(receiver.GetSessionState(w.ctx, nil))), "half way", "state")
		ok(receiver.Close(w.ctx))
		receiver = w.accept(queue, "a")
		equal(string(got(receiver.GetSessionState(w.ctx, nil))), "half way", "state")
		ok(receiver.SetSessionState(w.ctx, nil, nil))
		equal(len(got(receiver.GetSessionState(w.ctx, nil))), 0, "length of the state")
	})

	// SES-12, AMQP-82
	scenario("a session lock is renewed", func(w *World) {
		queue := w.queue(required, properties{"lockDuration": "PT4S"})
		w.sendTo(queue, "a", "x")
		receiver := w.accept(queue, "a")
		message := w.one(receiver)
		for range 3 {
			time.Sleep(2 * time.Second)
			before := receiver.LockedUntil()
			ok(receiver.RenewSessionLock(w.ctx, nil))
			that(receiver.LockedUntil().After(before), "it ends at %s, as before", before)
		}
		ok(receiver.CompleteMessage(w.ctx, message, nil))
	})

	// AMQP-74, SES-30
	scenario("a session lock that ends gives the session to another", func(w *World) {
		queue := w.queue(required, properties{"lockDuration": "PT1S"})
		w.sendTo(queue, "a", "x")
		w.one(w.accept(queue, "a"))
		time.Sleep(1500 * time.Millisecond)
		other := got(w.open(w.broker.connectionString(), nil).AcceptSessionForQueue(w.ctx, queue, "a", nil))
		again := w.one(other)
		equal(again.DeliveryCount, uint32(2), "deliveries")
		ok(other.CompleteMessage(w.ctx, again, nil))
	})

	// AMQP-70
	scenario("a receiver without session is refused where one is required", func(w *World) {
		queue := w.queue(required)
		receiver := got(w.once(w.broker.connectionString()).NewReceiverForQueue(queue, nil))
		_, err := receiver.ReceiveMessages(w.ctx, 1, nil)
		refused(err, "")
		that(strings.Contains(strings.ToLower(err.Error()), "session"), "%v", err)
	})

	// AMQP-70
	scenario("a session is refused at a queue without sessions", func(w *World) {
		_, err := w.once(w.broker.connectionString()).AcceptSessionForQueue(w.ctx, w.queue(), "a", nil)
		refused(err, "")
	})

	// DEF-01, SES-20
	scenario("a message of a session is deferred", func(w *World) {
		queue := w.queue(required)
		w.sendTo(queue, "a", "x")
		receiver := w.accept(queue, "a")
		message := w.one(receiver)
		ok(receiver.DeferMessage(w.ctx, message, nil))
		again := got(receiver.ReceiveDeferredMessages(w.ctx, []int64{*message.SequenceNumber}, nil))
		ok(receiver.CompleteMessage(w.ctx, again[0], nil))
		equal(w.counted(queue, "totalMessageCount"), 0, "messages left")
	})

	// SES-20, SES-22
	scenario("a session keeps its order over abandons and dead letters", func(w *World) {
		queue := w.queue(required)
		w.sendTo(queue, "a", "1", "2", "3")
		receiver := w.accept(queue, "a")
		ok(receiver.AbandonMessage(w.ctx, w.one(receiver), nil))
		first := w.one(receiver)
		equal(string(first.Body), "1", "body")
		ok(receiver.DeadLetterMessage(w.ctx, first, nil))
		equal(bodies(w.receive(receiver, 2)), []string{"2", "3"}, "bodies")
		equal(string(w.one(w.deadLetters(queue)).Body), "1", "dead letter")
	})

	// PEK-07: this client does not send the session whose messages it wants to peek.
	scenario("a peek by a session receiver sees all sessions", func(w *World) {
		queue := w.queue(required)
		w.sendTo(queue, "a", "a1", "a2")
		w.sendTo(queue, "b", "b1")
		equal(bodies(got(w.accept(queue, "a").PeekMessages(w.ctx, 10, nil))), []string{"a1", "a2", "b1"}, "what is seen")
	})

	// AMQP-55, SES-21
	scenario("a session is received and deleted", func(w *World) {
		queue := w.queue(required)
		w.sendTo(queue, "a", "1", "2")
		options := &azservicebus.SessionReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
		receiver := got(w.client.AcceptSessionForQueue(w.ctx, queue, "a", options))
		equal(bodies(w.receive(receiver, 2)), []string{"1", "2"}, "bodies")
		equal(w.counted(queue, "totalMessageCount"), 0, "messages left")
	})

	// SES-29, AMQP-85
	scenario("sessions are listed", func(w *World) {
		queue := w.queue(required)
		var all []string
		sender := w.sender(queue)
		batch := got(sender.NewMessageBatch(w.ctx, nil))
		for n := range 120 {
			all = append(all, fmt.Sprintf("s%03d", n))
			ok(batch.AddMessage(&azservicebus.Message{SessionID: &all[n]}, nil))
		}
		ok(sender.SendMessageBatch(w.ctx, batch, nil))
		before := time.Now().Add(-time.Minute)
		ok(w.accept(queue, "state").SetSessionState(w.ctx, []byte("x"), nil))
		list := func(options *azservicebus.ListSessionsOptions) []string {
			var found []string
			for pages := w.client.NewListSessionsForQueuePager(queue, options); pages.More(); {
				found = append(found, got(pages.NextPage(w.ctx)).Sessions...)
			}
			return found
		}
		found := list(nil)
		for _, session := range all {
			that(slices.Contains(found, session), "%s is not told", session)
		}
		changed := list(&azservicebus.ListSessionsOptions{SessionStateUpdatedAfter: &before})
		equal(changed, []string{"state"}, "sessions whose state was set")
	})

	// AMQP-70
	scenario("a subscription has sessions", func(w *World) {
		topic := w.topic()
		w.ask("PUT", "topics/"+topic+"/subscriptions/s", required)
		w.sendTo(topic, "a", "x")
		receiver := got(w.client.AcceptNextSessionForSubscription(w.ctx, topic, "s", nil))
		equal(receiver.SessionID(), "a", "session")
		ok(receiver.CompleteMessage(w.ctx, w.one(receiver), nil))
	})
}
