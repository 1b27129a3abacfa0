package main

// External failures: a broker that is killed or stopped, connections that are cut, entities that
// are deleted; and ways to connect.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"
)

// patient options retry for long enough to survive a restart of the broker.
func patient() *azservicebus.ClientOptions {
	return &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{
		MaxRetries: 8, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 500 * time.Millisecond,
	}}
}

// own runs with a broker of its own, which the scenario may kill, and which has the queue `q`.
func (w *World) own(run func(*Broker), flags ...string) {
	place := got(os.MkdirTemp("", "peeklock-sdk-go-own-"))
	defer os.RemoveAll(place)
	broker := newBroker(w.broker.program, filepath.Join(place, "broker"), flags...)
	defer broker.kill()
	broker.ask("PUT", "queues/q", properties{})
	run(broker)
}

// Line is a proxy that can cut its connections.
type Line struct {
	listener net.Listener
	mutex    sync.Mutex
	open     []net.Conn
}

func newLine(to string) *Line {
	line := &Line{listener: got(net.Listen("tcp", "127.0.0.1:0"))}
	go func() {
		for {
			near, err := line.listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			line.mutex.Lock()
			line.open = append(line.open, near, far)
			line.mutex.Unlock()
			go func() { _, _ = io.Copy(near, far); near.Close() }()
			go func() { _, _ = io.Copy(far, near); far.Close() }()
		}
	}()
	return line
}

// cut ends all connections without an AMQP close; new ones are accepted.
func (l *Line) cut() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, connection := range l.open {
		connection.Close()
	}
	l.open = nil
}

// lost asserts that a message can no longer be settled: the SDK retries over the lost link until
// its time is over.
func (w *World) lost(receiver *azservicebus.Receiver, message *azservicebus.ReceivedMessage) {
	ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
	defer cancel()
	refused(receiver.CompleteMessage(ctx, message, nil), "")
}

func failures() {
	// AMQP-79, SND-29
	scenario("acknowledged messages are there after a kill", func(w *World) {
		w.own(func(broker *Broker) {
			client := w.open(broker.connectionString(), patient())
			sender := got(client.NewSender("q", nil))
			var all []string
			for n := range 20 {
				all = append(all, fmt.Sprint(n))
				ok(sender.SendMessage(w.ctx, text(all[n]), nil))
			}
			broker.kill()
			broker.start()
			all = append(all, "after")
			ok(sender.SendMessage(w.ctx, text("after"), nil))
			receiver := got(client.NewReceiverForQueue("q", nil))
			equal(bodies(w.receive(receiver, 21)), all, "what is there")
		})
	})

	// AMQP-41, FND-02
	scenario("nothing accepted is missing after kills in the middle", func(w *World) {
		w.own(func(broker *Broker) {
			client := w.open(broker.connectionString(), patient())
			var mutex sync.Mutex
			accepted := map[string]bool{}
			count := func() int {
				mutex.Lock()
				defer mutex.Unlock()
				return len(accepted)
			}
			var senders sync.WaitGroup
			over := make(chan struct{})
			for number := range 4 {
				sender := got(client.NewSender("q", nil))
				senders.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-over:
							return
						default:
						}
						body := fmt.Sprintf("%d-%d", number, n)
						// The outcome of a failed send is unknown.
						if sender.SendMessage(w.ctx, text(body), nil) == nil {
							mutex.Lock()
							accepted[body] = true
							mutex.Unlock()
						}
					}
				})
			}
			func() {
				defer senders.Wait()
				defer close(over)
				goOn := func() {
					goal := count() + 100
					w.until(func() bool { return count() >= goal }, "further messages are accepted")
				}
				for range 2 {
					goOn()
					broker.kill()
					broker.start()
				}
				goOn()
			}()
			// A message without an answer may be absent, stored once, or stored twice.
			var missing []string
			there := w.drainOf(broker, w.open(broker.connectionString(), nil), "q")
			for body := range accepted {
				if !slices.Contains(there, body) {
					missing = append(missing, body)
				}
			}
			equal(len(missing), 0, fmt.Sprintf("how many are missing (%v)", missing))
		})
	})

	// SET-21
	scenario("a receiver continues after a kill", func(w *World) {
		w.own(func(broker *Broker) {
			client := w.open(broker.connectionString(), patient())
			sender := got(client.NewSender("q", nil))
			receiver := got(client.NewReceiverForQueue("q", nil))
			ok(sender.SendMessage(w.ctx, text("before"), nil))
			locked := w.one(receiver)
			broker.kill()
			broker.start()
			w.lost(receiver, locked)
			again := w.one(receiver)
			equal(string(again.Body), "before", "body")
			ok(receiver.CompleteMessage(w.ctx, again, nil))
			ok(sender.SendMessage(w.ctx, text("after"), nil))
			equal(string(w.one(receiver).Body), "after", "body")
		})
	})

	// AMQP-91
	scenario("a stopping broker notifies clients and they reconnect", func(w *World) {
		w.own(func(broker *Broker) {
			client := w.open(broker.connectionString(), patient())
			sender := got(client.NewSender("q", nil))
			ok(sender.SendMessage(w.ctx, text("a"), nil))
			broker.stop()
			broker.start()
			ok(sender.SendMessage(w.ctx, text("b"), nil))
			equal(bodies(w.receive(got(client.NewReceiverForQueue("q", nil)), 2)), []string{"a", "b"}, "what is there")
		})
	})

	// SET-21, SET-24
	scenario("a cut connection is reopened", func(w *World) {
		queue := w.queue(properties{"lockDuration": "PT5S"})
		line := newLine(w.broker.amqp)
		defer line.listener.Close()
		defer line.cut()
		through := *w.broker
		through.amqp = line.listener.Addr().String()
		client := w.open(through.connectionString(), patient())
		sender := got(client.NewSender(queue, nil))
		receiver := got(client.NewReceiverForQueue(queue, nil))
		ok(sender.SendMessage(w.ctx, text("one"), nil))
		locked := w.one(receiver)
		line.cut()
		ok(sender.SendMessage(w.ctx, text("two"), nil))
		// The SDK does not settle over another connection; the lock outlives its connection until it
		// expires.
		w.lost(receiver, locked)
		messages := w.receive(receiver, 2)
		slices.SortFunc(messages, func(a, b *azservicebus.ReceivedMessage) int {
			return bytes.Compare(a.Body, b.Body)
		})
		equal(bodies(messages), []string{"one", "two"}, "what comes")
		equal(messages[0].DeliveryCount, uint32(2), "deliveries")
	})

	// SES-33
	scenario("a session whose connection is cut is accepted again", func(w *World) {
		queue := w.queue(properties{"requiresSession": true})
		line := newLine(w.broker.amqp)
		defer line.listener.Close()
		through := *w.broker
		through.amqp = line.listener.Addr().String()
		w.sendTo(queue, "a", "x")
		client := w.open(through.connectionString(), patient())
		w.one(got(client.AcceptSessionForQueue(w.ctx, queue, "a", nil)))
		line.cut()
		w.until(func() bool {
			receiver, err := w.client.AcceptSessionForQueue(w.ctx, queue, "a", nil)
			if err != nil {
				return false
			}
			equal(w.one(receiver).DeliveryCount, uint32(2), "deliveries")
			return true
		}, "the session is free")
	})

	// AMQP-79
	scenario("a deleted queue ends its links", func(w *World) {
		queue := w.queue()
		sender := w.sender(queue)
		ok(sender.SendMessage(w.ctx, text("x"), nil))
		w.ask("DELETE", "queues/"+queue, nil)
		refused(sender.SendMessage(w.ctx, text("y"), nil), azservicebus.CodeNotFound)
		w.ask("PUT", "queues/"+queue, properties{})
		ok(sender.SendMessage(w.ctx, text("z"), nil))
		equal(w.drain(queue), []string{"z"}, "what is there")
	})

	// AMQP-17, AMQP-18
	scenario("messages pass over WebSocket", func(w *World) {
		queue := w.queue()
		asked := ""
		dial := func(ctx context.Context, arguments azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			asked = arguments.Host
			address := "ws://" + w.broker.amqp + "/$servicebus/websocket"
			socket, _, err := websocket.Dial(ctx, address, &websocket.DialOptions{Subprotocols: []string{"amqp"}})
			if err != nil {
				return nil, err
			}
			socket.SetReadLimit(-1)
			return websocket.NetConn(context.Background(), socket, websocket.MessageBinary), nil
		}
		client := w.open(w.broker.connectionString(), &azservicebus.ClientOptions{NewWebSocketConn: dial})
		sender := got(client.NewSender(queue, nil))
		body := bytes.Repeat([]byte("0123456789abcdef!"), 58_000)
		ok(sender.SendMessage(w.ctx, text("small"), nil))
		ok(sender.SendMessage(w.ctx, &azservicebus.Message{Body: body}, nil))
		receiver := got(client.NewReceiverForQueue(queue, nil))
		messages := w.receive(receiver, 2)
		equal(string(messages[0].Body), "small", "body")
		that(bytes.Equal(messages[1].Body, body), "the large body differs")
		for _, message := range messages {
			ok(receiver.CompleteMessage(w.ctx, message, nil))
		}
		equal(w.counted(queue, "activeMessageCount"), 0, "messages left")
		that(asked != "", "nothing was dialled")
	})

	// AMQP-02, AMQP-18
	scenario("messages pass over TLS, also over WebSocket", func(w *World) {
		w.own(func(broker *Broker) {
			dial := func(ctx context.Context, arguments azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				options := &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: broker.http}
				socket, _, err := websocket.Dial(ctx, arguments.Host, options)
				if err != nil {
					return nil, err
				}
				return websocket.NetConn(context.Background(), socket, websocket.MessageBinary), nil
			}
			for name, options := range map[string]*azservicebus.ClientOptions{
				"AMQP":      {TLSConfig: broker.named()},
				"WebSocket": {NewWebSocketConn: dial},
			} {
				client := w.open(broker.secureString("amqp"), options)
				ok(got(client.NewSender("q", nil)).SendMessage(w.ctx, text(name), nil))
				receiver := got(client.NewReceiverForQueue("q", nil))
				message := w.one(receiver)
				equal(string(message.Body), name, "body")
				ok(receiver.CompleteMessage(w.ctx, message, nil))
			}
			// Without the authority no certificate is trusted.
			stranger := got(w.once(broker.secureString("amqp")).NewSender("q", nil))
			refused(stranger.SendMessage(w.ctx, text("x"), nil), "")
		}, "--tls")
	})

	// AMQP-07
	scenario("a client is opened and closed often", func(w *World) {
		queue := w.queue()
		for n := range 10 {
			client := w.open(w.broker.connectionString(), nil)
			ok(got(client.NewSender(queue, nil)).SendMessage(w.ctx, text(fmt.Sprint(n)), nil))
			ok(client.Close(w.ctx))
		}
		equal(len(w.drain(queue)), 10, "messages")
	})
}
