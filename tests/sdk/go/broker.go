package main

// A broker process of the built program, and requests beyond the SDK: entities, policies, counts.

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const root = "RootManageSharedAccessKey"

// Short, so that scenarios see locks end.
var settings = []string{
	"PEEKLOCK__LIMITS__LOCK_DURATION_MIN=1s",
	"PEEKLOCK__SERVER__ARBITERS=2",
	"PEEKLOCK__AMQP__WORKERS=2",
	"PEEKLOCK__LOG__FILTER=warn",
}

// Broker is a process. After kill, start serves the stored data at the same ports.
type Broker struct {
	program, directory string
	flags              []string
	// Ports by listener: http, ws, amqp.
	ports   map[string]string
	process *exec.Cmd
	http    *http.Client
	scheme  string
	amqp    string
	key     string
	// Trusts the development authority, if the broker has TLS.
	tls *tls.Config
}

func newBroker(program, directory string, flags ...string) *Broker {
	ok(os.MkdirAll(directory, 0o700))
	b := &Broker{
		program:   program,
		directory: directory,
		flags:     flags,
		ports:     map[string]string{"http": "0", "ws": "0", "amqp": "0"},
		http:      http.DefaultClient,
		scheme:    "http",
	}
	b.start()
	return b
}

func (b *Broker) start() {
	arguments := append([]string{"serve", "--data-dir", "data"}, b.flags...)
	for listener, port := range b.ports {
		arguments = append(arguments, "--"+listener, "127.0.0.1:"+port)
	}
	b.process = exec.Command(b.program, arguments...)
	b.process.Dir = b.directory
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(strings.ToUpper(variable), "PEEKLOCK") {
			b.process.Env = append(b.process.Env, variable)
		}
	}
	b.process.Env = append(b.process.Env, settings...)
	log := got(os.OpenFile(b.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	defer log.Close()
	b.process.Stderr = log
	said := got(b.process.StdoutPipe())
	ok(b.process.Start())
	found := map[string]string{}
	lines := bufio.NewScanner(said)
	for len(found) < 3 && lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) != 2 || !strings.Contains(words[1], "://") {
			continue
		}
		port := words[1][strings.LastIndex(words[1], ":")+1:]
		switch words[0] {
		case "http", "amqp":
			found[words[0]] = port
		case "websocket":
			found["ws"] = port
		}
	}
	that(len(found) == 3, "the broker did not start; see %s", b.log())
	go func() { _, _ = io.Copy(io.Discard, said) }()
	b.ports = found
	b.amqp = "127.0.0.1:" + found["amqp"]
	first := strings.SplitN(string(got(os.ReadFile(filepath.Join(b.directory, "data/root.connection-string")))), "\n", 2)[0]
	b.key = strings.SplitN(strings.SplitN(first, "SharedAccessKey=", 2)[1], ";", 2)[0]
	if authority, err := os.ReadFile(filepath.Join(b.directory, "data/tls/authority.pem")); err == nil {
		trusted := x509.NewCertPool()
		that(trusted.AppendCertsFromPEM(authority), "authority.pem has no certificate")
		b.tls = &tls.Config{RootCAs: trusted}
		b.http = &http.Client{Transport: &http.Transport{TLSClientConfig: b.tls}}
		b.scheme = "https"
	}
}

// named trusts it too, and sets the host name: for a string with a port the SDK would use both as
// the name.
func (b *Broker) named() *tls.Config {
	named := b.tls.Clone()
	named.ServerName = "localhost"
	return named
}

func (b *Broker) log() string { return filepath.Join(b.directory, "log") }

// kill sends SIGKILL: data that was not durable is lost.
func (b *Broker) kill() { b.end(syscall.SIGKILL) }

// stop sends SIGTERM, for an orderly end.
func (b *Broker) stop() { b.end(syscall.SIGTERM) }

func (b *Broker) end(signal syscall.Signal) {
	if b.process.ProcessState != nil {
		return
	}
	_ = b.process.Process.Signal(signal)
	_ = b.process.Wait()
}

// sign creates a shared access signature like any client.
func sign(policy, key, resource string, lasts time.Duration) string {
	encoded := url.QueryEscape(resource)
	expiry := time.Now().Add(lasts).Unix()
	digest := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(digest, "%s\n%d", encoded, expiry)
	signature := url.QueryEscape(base64.StdEncoding.EncodeToString(digest.Sum(nil)))
	return fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s", encoded, signature, expiry, policy)
}

// connectionString is the string for applications.
func (b *Broker) connectionString() string { return b.policyString(root, b.key) }

func (b *Broker) policyString(policy, key string) string {
	return fmt.Sprintf(
		"Endpoint=sb://%s;SharedAccessKeyName=%s;SharedAccessKey=%s;UseDevelopmentEmulator=true", b.amqp, policy, key,
	)
}

func (b *Broker) tokenString(token string) string {
	return fmt.Sprintf("Endpoint=sb://%s;SharedAccessSignature=%s;UseDevelopmentEmulator=true", b.amqp, token)
}

// secureString is the string for clients with TLS, at the port of a listener.
func (b *Broker) secureString(listener string) string {
	return fmt.Sprintf(
		"Endpoint=sb://localhost:%s;SharedAccessKeyName=%s;SharedAccessKey=%s", b.ports[listener], root, b.key,
	)
}

// counted is a number in the runtime properties of a queue.
func (b *Broker) counted(queue, name string) int {
	runtime := b.ask("GET", "queues/"+queue, nil)["runtime"].(map[string]any)
	return int(runtime[name].(float64))
}

// ask sends a request to the JSON API; a refusal fails the scenario.
func (b *Broker) ask(method, path string, body any) map[string]any {
	var sent io.Reader
	if body != nil {
		sent = bytes.NewReader(got(json.Marshal(body)))
	}
	request := got(http.NewRequest(method, fmt.Sprintf("%s://127.0.0.1:%s/$api/v1/%s", b.scheme, b.ports["http"], path), sent))
	request.Header.Set("Authorization", sign(root, b.key, "http://localhost/", 10*time.Minute))
	request.Header.Set("Content-Type", "application/json")
	answer := got(b.http.Do(request))
	defer answer.Body.Close()
	text := got(io.ReadAll(answer.Body))
	that(answer.StatusCode < 300, "%s %s: %d %s", method, path, answer.StatusCode, text)
	told := map[string]any{}
	if len(text) > 0 {
		ok(json.Unmarshal(text, &told))
	}
	return told
}
