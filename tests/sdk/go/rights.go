package main

// Access: keys, rights, tokens that expire, connection strings of entities.

import (
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func rights() {
	const wrong = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

	// AMQP-21, SEC-14
	scenario("a wrong key is refused", func(w *World) {
		queue := w.queue()
		client := w.once(w.broker.policyString(root, wrong))
		err := got(client.NewSender(queue, nil)).SendMessage(w.ctx, text("x"), nil)
		refused(err, azservicebus.CodeUnauthorizedAccess)
		that(!strings.Contains(err.Error(), wrong), "the key is told")
		equal(w.counted(queue, "totalMessageCount"), 0, "messages")
	})

	// AMQP-25, SEC-05
	scenario("a policy that may listen may not send", func(w *World) {
		queue := w.queue()
		key := w.policy(queue, "ears", "Listen")
		w.send(queue, "x")
		client := w.once(w.broker.policyString("ears", key))
		refused(got(client.NewSender(queue, nil)).SendMessage(w.ctx, text("y"), nil), azservicebus.CodeUnauthorizedAccess)
		receiver := got(client.NewReceiverForQueue(queue, nil))
		ok(receiver.CompleteMessage(w.ctx, w.one(receiver), nil))
	})

	// AMQP-25, SEC-05
	scenario("a policy that may send may not listen", func(w *World) {
		queue := w.queue()
		client := w.once(w.broker.policyString("mouth", w.policy(queue, "mouth", "Send")))
		ok(got(client.NewSender(queue, nil)).SendMessage(w.ctx, text("x"), nil))
		_, err := got(client.NewReceiverForQueue(queue, nil)).ReceiveMessages(w.ctx, 1, nil)
		refused(err, azservicebus.CodeUnauthorizedAccess)
		equal(w.drain(queue), []string{"x"}, "what is there")
	})

	// SEC-12, SEC-13
	scenario("a policy of one queue is refused at another", func(w *World) {
		queue, other := w.queue(), w.queue()
		client := w.once(w.broker.policyString("mine", w.policy(queue, "mine", "Send", "Listen")))
		ok(got(client.NewSender(queue, nil)).SendMessage(w.ctx, text("x"), nil))
		refused(got(client.NewSender(other, nil)).SendMessage(w.ctx, text("x"), nil), azservicebus.CodeUnauthorizedAccess)
	})

	// SEC-18, SEC-20
	scenario("a connection string may be of one queue", func(w *World) {
		queue := w.queue()
		client := w.open(w.broker.connectionString()+";EntityPath="+queue, nil)
		ok(got(client.NewSender(queue, nil)).SendMessage(w.ctx, text("x"), nil))
		equal(w.drain(queue), []string{"x"}, "what is there")
	})

	// SEC-10, AMQP-24
	scenario("a token signed earlier is accepted", func(w *World) {
		queue := w.queue()
		token := sign(root, w.broker.key, "sb://"+w.broker.amqp+"/"+queue, time.Minute)
		client := w.open(w.broker.tokenString(token), nil)
		ok(got(client.NewSender(queue, nil)).SendMessage(w.ctx, text("x"), nil))
		equal(w.drain(queue), []string{"x"}, "what is there")
	})

	// AMQP-24, SEC-14
	scenario("a token that has ended is refused", func(w *World) {
		queue := w.queue()
		token := sign(root, w.broker.key, "sb://"+w.broker.amqp+"/"+queue, -5*time.Second)
		client := w.once(w.broker.tokenString(token))
		refused(got(client.NewSender(queue, nil)).SendMessage(w.ctx, text("x"), nil), azservicebus.CodeUnauthorizedAccess)
	})

	// AMQP-26, AMQP-79, SEC-15
	scenario("a link ends with its token", func(w *World) {
		queue := w.queue()
		token := sign(root, w.broker.key, "sb://"+w.broker.amqp+"/"+queue, 3*time.Second)
		sender := got(w.open(w.broker.tokenString(token), nil).NewSender(queue, nil))
		ok(sender.SendMessage(w.ctx, text("in time"), nil))
		time.Sleep(4500 * time.Millisecond)
		refused(sender.SendMessage(w.ctx, text("late"), nil), azservicebus.CodeUnauthorizedAccess)
		equal(w.drain(queue), []string{"in time"}, "what is there")
	})

	// SEC-09
	scenario("a replaced key is refused", func(w *World) {
		queue := w.queue()
		client := w.open(w.broker.policyString("mine", w.policy(queue, "mine", "Send")), nil)
		sender := got(client.NewSender(queue, nil))
		ok(sender.SendMessage(w.ctx, text("before"), nil))
		w.ask("POST", "queues/"+queue+"/policies/mine/regenerate", properties{"key": "primary"})
		time.Sleep(1200 * time.Millisecond)
		refused(sender.SendMessage(w.ctx, text("after"), nil), azservicebus.CodeUnauthorizedAccess)
		equal(w.drain(queue), []string{"before"}, "what is there")
	})
}
