// Runs the scenarios against a broker of their own: `PROGRAM BROKER sdk|admin [PART OF A TITLE]`.
// Ends with a line `ok N scenarios`, or prints the failures.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// Scenarios that run at the same time.
const width = 24

func main() {
	program, suite, part := os.Args[1], os.Args[2], os.Args[3:]
	place := got(os.MkdirTemp("", "peeklock-sdk-go-"))
	var failed int
	switch suite {
	case "sdk":
		sending()
		receiving()
		settling()
		scheduling()
		sessions()
		rights()
		failures()
		failed = all(newBroker(program, filepath.Join(place, "broker")), part)
	case "admin":
		administration()
		failed = all(newBroker(program, filepath.Join(place, "broker"), "--tls"), part)
	}
	if failed > 0 {
		fmt.Printf("%d of %d scenarios failed; the broker's log is in %s\n", failed, len(scenarios), place)
		os.Exit(1)
	}
	ok(os.RemoveAll(place))
	fmt.Printf("ok %d scenarios\n", len(scenarios))
}

// all runs the selected scenarios, and returns the number of failures.
func all(broker *Broker, part []string) int {
	defer broker.kill()
	scenarios = slices.DeleteFunc(scenarios, func(one Scenario) bool {
		return slices.ContainsFunc(part, func(word string) bool { return !strings.Contains(one.title, word) })
	})
	type outcome struct {
		title, told string
		took        time.Duration
	}
	outcomes := make([]outcome, len(scenarios))
	places := make(chan struct{}, width)
	var workers sync.WaitGroup
	for number, one := range scenarios {
		places <- struct{}{}
		workers.Go(func() {
			defer func() { <-places }()
			began := time.Now()
			told := run(one, broker, fmt.Sprintf("go-%d", number))
			outcomes[number] = outcome{one.title, told, time.Since(began)}
		})
	}
	workers.Wait()
	failed := 0
	for _, one := range outcomes {
		if one.told != "" {
			failed++
			fmt.Printf("--- %s\n%s\n", one.title, one.told)
		}
	}
	if log := string(got(os.ReadFile(broker.log()))); strings.Contains(log, "panicked") {
		failed++
		fmt.Printf("--- the broker panicked\n%s\n", log)
	}
	slices.SortFunc(outcomes, func(a, b outcome) int { return int(b.took - a.took) })
	for _, one := range outcomes[:min(5, len(outcomes))] {
		fmt.Printf("slowest: %s %.1f s\n", one.title, one.took.Seconds())
	}
	return failed
}

// run runs one scenario, and returns its failure, if any.
func run(one Scenario, broker *Broker, name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), timeMax)
	defer cancel()
	ended := make(chan string, 1)
	go func() {
		var w *World
		defer func() {
			told := ""
			if caught := recover(); caught != nil {
				told = fmt.Sprint(caught)
				if failed, is := caught.(failure); is {
					told = failed.told
				}
				told += "\n" + where()
			}
			if w != nil {
				w.close()
			}
			ended <- told
		}()
		w = newWorld(ctx, broker, name)
		one.run(w)
	}()
	select {
	case told := <-ended:
		return told
	case <-time.After(timeMax + 15*time.Second):
		return "it hangs"
	}
}

// where returns the lines of the stack that belong to this program.
func where() string {
	var lines []string
	for _, line := range strings.Split(string(debug.Stack()), "\n") {
		if strings.Contains(line, "/sdk/go/") && !strings.Contains(line, "main.go") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}
