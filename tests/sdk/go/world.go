package main

// Shared parts of scenarios: their registry, a client, entities, and checks.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	// Maximum duration of a scenario.
	timeMax = 60 * time.Second
	// Maximum wait of a receive for an expected message.
	patience = 20 * time.Second
)

// Scenario runs with a world of its own.
type Scenario struct {
	title string
	run   func(*World)
}

var scenarios []Scenario

func scenario(title string, run func(*World)) {
	scenarios = append(scenarios, Scenario{title, run})
}

// failure is the panic value of a check, which the runner prints.
type failure struct{ told string }

func that(condition bool, format string, values ...any) {
	if !condition {
		panic(failure{fmt.Sprintf(format, values...)})
	}
}

func ok(err error) {
	that(err == nil, "%v", err)
}

func got[T any](value T, err error) T {
	ok(err)
	return value
}

func equal(value, expected any, what string) {
	that(reflect.DeepEqual(value, expected), "%s is %s, not %s", what, shown(value), shown(expected))
}

// shown prints a value with the values that it points to.
func shown(value any) string {
	if told, err := json.Marshal(value); err == nil {
		return fmt.Sprintf("%T %s", value, told)
	}
	return fmt.Sprintf("%#v", value)
}

// refused asserts that an action failed, with this code of the SDK if one is given.
func refused(err error, code azservicebus.Code) {
	that(err != nil, "nothing was refused")
	if code == "" {
		return
	}
	var told *azservicebus.Error
	that(errors.As(err, &told) && told.Code == code, "it is not %q: %v", code, err)
}

// refusedWith asserts that an action was refused with this AMQP condition, for which the SDK has no
// code.
func refusedWith(err error, condition string) {
	that(err != nil, "nothing was refused")
	that(strings.Contains(err.Error(), condition), "it is not %q: %v", condition, err)
}

// World is the environment of a scenario: one client, and its own entities on a shared broker.
type World struct {
	broker *Broker
	name   string
	count  int
	ctx    context.Context
	client *azservicebus.Client
	opened []*azservicebus.Client
}

func newWorld(ctx context.Context, broker *Broker, name string) *World {
	w := &World{broker: broker, name: name, ctx: ctx}
	w.client = w.open(broker.connectionString(), nil)
	return w
}

// open creates a client, which is closed with the scenario.
func (w *World) open(text string, options *azservicebus.ClientOptions) *azservicebus.Client {
	if options == nil {
		options = &azservicebus.ClientOptions{}
	}
	if options.RetryOptions == (azservicebus.RetryOptions{}) {
		options.RetryOptions = azservicebus.RetryOptions{MaxRetries: 2, RetryDelay: 200 * time.Millisecond}
	}
	client := got(azservicebus.NewClientFromConnectionString(text, options))
	w.opened = append(w.opened, client)
	return client
}

// once creates a client that never retries.
func (w *World) once(text string) *azservicebus.Client {
	return w.open(text, &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
}

func (w *World) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, client := range w.opened {
		all.Go(func() { _ = client.Close(ctx) })
	}
	all.Wait()
}

func (w *World) ask(method, path string, body any) map[string]any {
	return w.broker.ask(method, path, body)
}

func (w *World) unique() string {
	w.count++
	return fmt.Sprintf("%s-%d", w.name, w.count)
}

type properties = map[string]any

// queue creates a queue with these properties.
func (w *World) queue(all ...properties) string {
	name := w.unique()
	w.ask("PUT", "queues/"+name, merged(all))
	return name
}

// topic creates a topic with these subscriptions.
func (w *World) topic(subscriptions ...string) string {
	name := w.unique()
	w.ask("PUT", "topics/"+name, properties{})
	for _, subscription := range subscriptions {
		w.ask("PUT", "topics/"+name+"/subscriptions/"+subscription, properties{})
	}
	return name
}

func merged(all []properties) properties {
	one := properties{}
	for _, some := range all {
		for name, value := range some {
			one[name] = value
		}
	}
	return one
}

// counted is a number in the runtime properties of a queue.
func (w *World) counted(queue, name string) int { return w.broker.counted(queue, name) }

// policy creates a policy and returns its key.
func (w *World) policy(queue, name string, rights ...string) string {
	path := "queues/" + queue + "/policies/" + name
	w.ask("PUT", path, properties{"rights": rights})
	return w.ask("POST", path+"/keys", nil)["primaryKey"].(string)
}

func (w *World) sender(queue string) *azservicebus.Sender { return got(w.client.NewSender(queue, nil)) }

func (w *World) receiver(queue string) *azservicebus.Receiver {
	return got(w.client.NewReceiverForQueue(queue, nil))
}

func (w *World) deadLetters(queue string) *azservicebus.Receiver {
	options := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	return got(w.client.NewReceiverForQueue(queue, options))
}

// send sends bodies, one after another.
func (w *World) send(queue string, bodies ...string) {
	w.sendOf(queue, azservicebus.Message{}, bodies...)
}

// sendOf sends bodies with these properties.
func (w *World) sendOf(queue string, of azservicebus.Message, bodies ...string) {
	sender := w.sender(queue)
	for _, body := range bodies {
		of.Body = []byte(body)
		ok(sender.SendMessage(w.ctx, &of, nil))
	}
	ok(sender.Close(w.ctx))
}

// receives is the common interface of receivers of queues and sessions.
type receives interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// receive receives `count` messages in any number of calls.
func (w *World) receive(from receives, count int) []*azservicebus.ReceivedMessage {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	var found []*azservicebus.ReceivedMessage
	for len(found) < count {
		some, err := from.ReceiveMessages(ctx, count-len(found), nil)
		that(err == nil, "%v after %d of %d messages", err, len(found), count)
		found = append(found, some...)
	}
	return found
}

func (w *World) one(from receives) *azservicebus.ReceivedMessage { return w.receive(from, 1)[0] }

// nothing asserts that no message can be received.
func (w *World) nothing(from receives) {
	ctx, cancel := context.WithTimeout(w.ctx, 500*time.Millisecond)
	defer cancel()
	some, err := from.ReceiveMessages(ctx, 1, nil)
	equal(bodies(some), []string{}, "what was received")
	that(errors.Is(err, context.DeadlineExceeded), "it ended with %v", err)
}

// drain receives and deletes all messages of a queue.
func (w *World) drain(queue string) []string { return w.drainOf(w.broker, w.client, queue) }

// drainOf does the same for a scenario's own broker.
func (w *World) drainOf(broker *Broker, client *azservicebus.Client, queue string) []string {
	options := &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
	receiver := got(client.NewReceiverForQueue(queue, options))
	found := []string{}
	for broker.counted(queue, "activeMessageCount") > 0 {
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		some, err := receiver.ReceiveMessages(ctx, 500, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: 100 * time.Millisecond})
		cancel()
		ok(err)
		found = append(found, bodies(some)...)
	}
	ok(receiver.Close(w.ctx))
	return found
}

// until polls until a condition holds.
func (w *World) until(condition func() bool, what string) {
	for end := time.Now().Add(patience); !condition(); time.Sleep(50 * time.Millisecond) {
		that(time.Now().Before(end), "waited in vain: %s", what)
	}
}

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	all := []string{}
	for _, message := range messages {
		all = append(all, string(message.Body))
	}
	return all
}

func text(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }

func ptr[T any](value T) *T { return to.Ptr(value) }
