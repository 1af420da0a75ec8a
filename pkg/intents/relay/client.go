package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// describeTimeout is how long a peer may take to say how a kind is written: it has that in memory.
const describeTimeout = 5 * time.Second

// Client is the remediate.ClientFactory of all members of a fleet: of those that this process judges by its own, of
// others by their judges.
type Client struct {
	Local remediate.ClientFactory
	Fleet func() *intents.Fleet
}

// Client implements remediate.ClientFactory.
func (c *Client) Client(member string, kind policy.Kind, apiVersion string) (*remediate.Client, error) {
	fleet := c.Fleet()
	if fleet.Judges(member) {
		return c.Local.Client(member, kind, apiVersion)
	}
	judge, peer := fleet.JudgeOf(member)
	if peer == nil {
		return nil, fmt.Errorf("%w: process %q, which judges member %s, is not within reach", remediate.ErrNotNow, judge, member)
	}
	base := &http.Client{Transport: &transport{base: peer.Client.Transport, kind: string(kind), apiVersion: apiVersion}}
	d, err := describe(base, peer.URL+membersPath+member)
	if err != nil {
		return nil, fmt.Errorf("member %q: by process %s: %w", member, judge, err)
	}
	gv := schema.GroupVersion{Group: d.Group, Version: d.Version}
	api := "/apis"
	if gv.Group == "" {
		api = "/api"
	}
	client, err := rest.RESTClientForConfigAndClient(&rest.Config{
		Host: peer.URL, APIPath: membersPath + member + api, QPS: -1,
		ContentConfig: rest.ContentConfig{GroupVersion: &gv, NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	}, base)
	if err != nil {
		return nil, fmt.Errorf("member %q: by process %s: %w", member, judge, err)
	}
	return &remediate.Client{REST: client, Resource: d.Resource, Namespaced: d.Namespaced}, nil
}

func describe(client *http.Client, at string) (*description, error) {
	client = &http.Client{Transport: client.Transport, Timeout: describeTimeout}
	response, err := client.Get(at)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", remediate.ErrNotNow, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: it answers %s", remediate.ErrNotNow, response.Status)
	}
	d := &description{}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxMessage)).Decode(d); err != nil {
		return nil, fmt.Errorf("what it answers is no description: %w", err)
	}
	return d, nil
}

// transport tells a relay what a request is about, and turns its own answers into errors.
type transport struct {
	base             http.RoundTripper
	kind, apiVersion string
}

// Error is what a relay says of a request that it has not passed, or not known to be executed.
type Error struct {
	Code    int
	Message string
	now     bool
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("the relay answers %d: %s", e.Code, e.Message) }

// Is reports that an error is remediate.ErrNotNow, where another process is to be asked, or this one later.
func (e *Error) Is(target error) bool { return target == remediate.ErrNotNow && !e.now }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.Header.Set(kindHeader, t.kind)
	if t.apiVersion != "" {
		out.Header.Set(versionHeader, t.apiVersion)
	}
	if until, ok := r.Context().Deadline(); ok {
		left := time.Until(until).Milliseconds()
		if left <= 0 {
			return nil, context.DeadlineExceeded
		}
		out.Header.Set(timeHeader, strconv.FormatInt(left, 10))
	}
	response, err := t.base.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	outcome := response.Header.Get(outcomeHeader)
	if outcome == "" {
		return response, nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxMessage))
	if err != nil {
		text = []byte("(its reason could not be read)") // what it says of the request came before
	}
	said := &Error{Code: response.StatusCode, Message: clip.Line(string(text), maxMessage), now: outcome != notNow}
	if outcome == unknown {
		return nil, said
	}
	// Nothing was sent, which is what an error of dialling says.
	return nil, &net.OpError{Op: "dial", Net: "relay", Err: said}
}
