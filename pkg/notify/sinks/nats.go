package sinks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"federator.dev/federator/pkg/notify/internal/webhook"
)

// NATSOptions configure a NATS. URLs and Subject are required.
type NATSOptions struct {
	URLs       []string // of servers of one cluster: tls; nats for loopback only
	Subject    string   // the beginning of subjects: messages of dev.federator.a.b go to <Subject>.a.b
	Token      string   // "": none
	Username   string   // "": none
	Password   string
	Creds      []byte // the content of a .creds file; nil: none
	CA         []byte // PEM; nil: the system's roots
	ClientCert []byte // PEM, with ClientKey; nil: none
	ClientKey  []byte
	Dial       Dial          // nil: that of a net.Dialer
	Timeout    time.Duration // of connecting to each server, and until the next acknowledgement; 0: 10 s
}

// NATS publishes messages to a stream of JetStream. It is safe for concurrent use: one Send follows another.
type NATS struct {
	servers string // URLs, separated by commas
	subject string
	dial    Dial
	timeout time.Duration
	options []nats.Option
	// state holds the connection: who has taken it out may use it.
	state chan natsState
}

type natsState struct {
	session *session // nil: to be connected
	closed  bool
}

// NewNATS returns a NATS, or a FieldError. It connects with the first Send.
func NewNATS(opts NATSOptions) (*NATS, error) {
	config, err := tlsConfig(opts.CA, opts.ClientCert, opts.ClientKey)
	if err != nil {
		return nil, err
	}
	n := &NATS{servers: strings.Join(opts.URLs, ","), subject: opts.Subject, dial: dialOr(opts.Dial), state: make(chan natsState, 1)}
	n.state <- natsState{}
	if n.timeout, err = timeoutOr(opts.Timeout); err != nil {
		return nil, err
	}
	if !isSubject(opts.Subject) {
		return nil, &FieldError{Field: "subject", Problem: "it is not tokens of A-Z, a-z, 0-9, _ and -, separated by dots"}
	}
	secure, err := checkServers(opts.URLs)
	if err != nil {
		return nil, err
	}
	login, err := natsLogin(&opts)
	if err != nil {
		return nil, err
	}
	n.options = append(login,
		nats.Name("federator"), nats.Timeout(n.timeout), nats.FlusherTimeout(n.timeout),
		// A connection that is lost is not used again: the next Send dials, with its own context, none but
		// the servers that are configured. Names are left to dial.
		nats.NoReconnect(), nats.IgnoreDiscoveredServers(), nats.SkipHostLookup(),
		withTLS(config, secure))
	return n, nil
}

// withTLS configures TLS: required, or for a server that asks for it.
func withTLS(config *tls.Config, required bool) nats.Option {
	return func(o *nats.Options) error {
		o.TLSConfig, o.Secure = config, required
		return nil
	}
}

// checkServers returns whether TLS is required.
func checkServers(urls []string) (secure bool, err error) {
	if len(urls) == 0 {
		return false, &FieldError{Field: "urls", Problem: "there is none"}
	}
	for i, text := range urls {
		u, err := url.Parse(text)
		problem := ""
		switch {
		case err != nil || strings.Contains(text, ","):
			problem = "it is not a URL"
		case u.Hostname() == "" || u.Scheme != "tls" && u.Scheme != "nats":
			problem = "it is not a tls or nats URL"
		case u.User != nil:
			problem = "it has a user: credentials have fields of their own"
		case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
			problem = "it has more than a host and a port"
		case u.Scheme == "nats" && !webhook.IsLoopback(u.Hostname()):
			problem = "nats, without TLS, is for addresses of this machine only"
		}
		if problem != "" {
			return false, &FieldError{Field: fmt.Sprintf("urls[%d]", i), Problem: problem}
		}
		secure = secure || u.Scheme == "tls"
	}
	return secure, nil
}

// natsLogin returns the options of the credentials, of which there is one kind at most.
func natsLogin(opts *NATSOptions) ([]nats.Option, error) {
	var login []nats.Option
	if opts.Token != "" {
		login = append(login, nats.Token(opts.Token))
	}
	if opts.Username != "" || opts.Password != "" {
		login = append(login, nats.UserInfo(opts.Username, opts.Password))
	}
	if opts.Creds != nil {
		_, err := nkeys.ParseDecoratedJWT(opts.Creds)
		pair, keyErr := nkeys.ParseDecoratedUserNKey(opts.Creds)
		if err != nil || keyErr != nil {
			return nil, &FieldError{Field: "creds", Problem: "it is not a user's JWT and seed as a .creds file has them"}
		}
		pair.Wipe()
		login = append(login, nats.UserCredentialBytes(opts.Creds))
	}
	if len(login) > 1 {
		return nil, &FieldError{Field: "token", Problem: "there is one of token, username with password, and creds at most"}
	}
	return login, nil
}

const typePrefix = "dev.federator."

// subjectOf returns the subject of a type of messages, or a FieldError.
func (n *NATS) subjectOf(kind string) (string, error) {
	rest, is := strings.CutPrefix(kind, typePrefix)
	if !is || !isSubject(rest) {
		return "", &FieldError{Field: "type", Problem: "it is not " + typePrefix + " and tokens of A-Z, a-z, 0-9, _ and -, separated by dots"}
	}
	return n.subject + "." + rest, nil
}

// isSubject tells whether a text is tokens of a subject that need no quoting anywhere.
func isSubject(text string) bool {
	for token := range strings.SplitSeq(text, ".") {
		if token == "" || strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			return false
		}
	}
	return true
}

// Send publishes messages, many at once, and waits until the stream has acknowledged each. It returns how many
// are acknowledged from the first; err is why no more. Later ones may have been taken, too: sent again, the
// stream knows them by their ID within its duplicate window.
func (n *NATS) Send(ctx context.Context, messages []Message) (sent int, err error) {
	var state natsState
	select {
	case state = <-n.state:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	defer func() {
		if err != nil && state.session != nil {
			// What is still in flight is not waited for by anyone.
			state.session.close()
			state.session = nil
		}
		n.state <- state
	}()
	if state.closed {
		return 0, net.ErrClosed
	}
	if state.session != nil && state.session.conn.IsClosed() {
		state.session.close()
		state.session = nil
	}
	if state.session == nil {
		if state.session, err = n.connect(ctx); err != nil {
			return 0, bounded(err)
		}
	}
	if sent, err = n.publish(ctx, state.session, messages); err != nil {
		return sent, bounded(err)
	}
	return sent, nil
}

// Close waits for a Send under way, and closes the connection.
func (n *NATS) Close() error {
	state := <-n.state
	if state.session != nil {
		state.session.close()
	}
	n.state <- natsState{closed: true}
	return nil
}

// maxInFlight is how many messages wait for their acknowledgement.
const maxInFlight = 256

func (n *NATS) publish(ctx context.Context, s *session, messages []Message) (sent int, err error) {
	defer s.interruptible(ctx)()
	timer := time.NewTimer(n.timeout)
	defer timer.Stop()
	var inFlight [maxInFlight]jetstream.PubAckFuture
	published := 0
	var stop error // why nothing more is published
	for sent < len(messages) {
		for stop == nil && published < len(messages) && published-sent < maxInFlight {
			var ack jetstream.PubAckFuture
			if ack, stop = n.start(s, &messages[published]); stop == nil {
				inFlight[published%maxInFlight] = ack
				published++
			}
		}
		if sent == published {
			return sent, s.explain(ctx, fmt.Errorf("message %q: %w", messages[sent].ID, tooLarge(stop)))
		}
		timer.Reset(n.timeout)
		ack := inFlight[sent%maxInFlight]
		if err := s.wait(ctx, ack, timer.C); err != nil {
			subject := ack.Msg().Subject
			if errors.Is(err, jetstream.ErrNoStreamResponse) {
				err = fmt.Errorf("no stream takes subject %s: %w", subject, err)
			}
			return sent, s.explain(ctx, fmt.Errorf("message %q: %w", messages[sent].ID, tooLarge(err)))
		}
		sent++
	}
	return sent, nil
}

// exceedsStream is the code of JetStream for a message that is larger than its stream allows.
const exceedsStream jetstream.ErrorCode = 10054

// tooLarge returns an error, as a FieldError where it says that a message is larger than the server or the stream takes.
func tooLarge(err error) error {
	var api *jetstream.APIError
	if errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == exceedsStream {
		return fmt.Errorf("%w: %w", &FieldError{Field: "data", Problem: "it is larger than the server takes"}, err)
	}
	return err
}

// start publishes a message without waiting for its acknowledgement.
func (n *NATS) start(s *session, m *Message) (jetstream.PubAckFuture, error) {
	body, err := m.body()
	if err != nil {
		return nil, err
	}
	subject, err := n.subjectOf(m.Type)
	if err != nil {
		return nil, err
	}
	msg := nats.NewMsg(subject)
	msg.Data = body
	msg.Header.Set("Content-Type", webhook.ContentType)
	// A message that is retried by the library would come after those that follow it.
	return s.stream.PublishMsgAsync(msg, jetstream.WithMsgID(m.ID), jetstream.WithRetryAttempts(0))
}
