package remediate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/kube/tcpproxy"
	"federator.dev/federator/test/seed"
)

var errLost = errors.New("the connection is lost")

// isWrite reports whether a request to the member writes. A delete says in its body
// whether it is a dry run, which is the first that is sent.
func isWrite(r *http.Request, deletes *int) bool {
	switch r.Method {
	case http.MethodDelete:
		*deletes++
		return *deletes > 1
	case http.MethodPatch, http.MethodPost:
		return !r.URL.Query().Has("dryRun")
	}
	return false
}

const aSecret = `{"metadata":{"name":"%s"},"stringData":{"a":"1"}}`

// verbs are one correction of each verb.
var verbs = []struct {
	name   string
	object string // "" where it is made
	kind   policy.Kind
	remedy policy.Remedy
	audit  string
}{
	{"apply", oneMap, "ConfigMap", apply(`{"apiVersion":"v1","data":{"c":"3"}}`), "patch by us"},
	{"create", "", "ConfigMap", apply(`{"apiVersion":"v1","data":{"c":"3"}}`), "create by us"},
	{"patch", oneMap, "ConfigMap", patch(`{"data":{"c":"3"}}`), "patch by us"},
	{"json", oneMap, "ConfigMap", patch(`[{"op":"add","path":"/data/c","value":"3"}]`), "patch by us"},
	{"delete", oneMap, "ConfigMap", policy.Remedy{Action: "delete"}, "delete by others"}, // it names no manager
	{"secret", aSecret, "Secret", patch(`{"stringData":{"c":"3"}}`), "patch by us"},
}

// intentForVerb creates the target of one of verbs, and returns the audit log to expect.
func (s *fixture) intentForVerb(n int, name string) (*Intent, []string) {
	s.Helper()
	v := verbs[n]
	v.remedy.Target = policy.Ref{Kind: v.kind, Namespace: s.ns, Name: name}
	if v.object == "" {
		return s.intentFor(nil, v.remedy), []string{v.audit}
	}
	return s.intentFor(s.create(v.kind, fmt.Sprintf(v.object, name)), v.remedy), []string{"create by others", v.audit}
}

// expectAudit is expectWrites of an intent's target.
func (s *fixture) expectAudit(i *Intent, want []string) {
	s.Helper()
	s.expectWrites(servedKinds[i.Remedy.Target.Kind].Resource, i.Remedy.Target.Name, want...)
}

// TestExecutor_FindsLostAnswersOnTarget: the write is done and the response is lost.
func TestExecutor_FindsLostAnswersOnTarget(t *testing.T) {
	s := newFixture(t)
	for n, v := range verbs {
		t.Run(v.name, func(t *testing.T) {
			s.T = t
			i, writes := s.intentForVerb(n, v.name)
			deletes, lost := 0, 0
			s.member.after = func(r *http.Request) error {
				if isWrite(r, &deletes) && lost == 0 {
					lost++
					return errLost
				}
				return nil
			}
			a := s.execute(i)
			s.member.after = nil
			if lost != 1 || a.Phase != v1alpha1.PhaseSucceeded || a.Attempts != 1 {
				t.Errorf("lost %d answers: %s %s after %d attempts", lost, a.Phase, a.Message, a.Attempts)
			}
			if known := s.recorded(a.Name); known == nil || known.Phase != v1alpha1.PhaseSucceeded {
				t.Errorf("recorded %+v", known)
			}
			s.expectAudit(i, writes)
		})
	}
}

// TestExecutor_UnansweredWriteIsInDoubt: the member is out of reach right after the write.
// The record stays in phase Writing until the member answers.
func TestExecutor_UnansweredWriteIsInDoubt(t *testing.T) {
	for n, v := range verbs {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			i, writes := s.intentForVerb(n, v.name)
			deletes, away := 0, false
			s.member.before = func(*http.Request) error {
				if away {
					return errLost
				}
				return nil
			}
			s.member.after = func(r *http.Request) error {
				if away = away || isWrite(r, &deletes); away {
					return errLost
				}
				return nil
			}
			a, err := s.exec.execute(t.Context(), i)
			if !errors.Is(err, errInDoubt) || a.Phase != v1alpha1.PhaseWriting {
				t.Fatalf("%v: %s %s", err, a.Phase, a.Message)
			}
			if known := s.recorded(a.Name); known.Phase != v1alpha1.PhaseWriting || known.Attempts != maxAttempts || known.Message == "" {
				t.Errorf("recorded %+v", known)
			}
			s.exec.resolveAll(t.Context())
			if known := s.recorded(a.Name); known.Phase != v1alpha1.PhaseWriting {
				t.Errorf("recorded while the member is away: %+v", known)
			}
			away, s.member.after = false, nil
			s.exec.resolveAll(t.Context())
			if known := s.recorded(a.Name); known.Phase != v1alpha1.PhaseSucceeded {
				t.Errorf("recorded %+v", known)
			}
			if len(s.resolved) != 1 || s.resolved[0].Phase != v1alpha1.PhaseSucceeded || len(s.exec.listInDoubt()) != 0 {
				t.Errorf("settled %+v", s.resolved)
			}
			s.expectAudit(i, writes)
		})
	}
}

// TestExecutor_RetriesLostRequests: the request was lost on its way.
func TestExecutor_RetriesLostRequests(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	for n, v := range verbs {
		t.Run(v.name, func(t *testing.T) {
			s.T = t
			i, writes := s.intentForVerb(n, v.name)
			deletes, lost := 0, 0
			s.member.before = func(r *http.Request) error {
				if isWrite(r, &deletes) && lost < 2 {
					lost++
					return errLost
				}
				return nil
			}
			a := s.execute(i)
			s.member.before = nil
			if a.Phase != v1alpha1.PhaseSucceeded || a.Attempts != 2 {
				t.Errorf("%s %s after %d attempts", a.Phase, a.Message, a.Attempts)
			}
			s.expectAudit(i, writes)
		})
	}
}

// TestExecutor_HubAnswersMayBeLost: each response of the hub, once.
func TestExecutor_HubAnswersMayBeLost(t *testing.T) {
	s := newFixture(t)
	for n, method := range []string{http.MethodPost, http.MethodPatch} {
		name := fmt.Sprintf("one-%d", n)
		i, writes := s.intentForVerb(2, name)
		lost := 0
		s.hub.after = func(r *http.Request) error {
			if r.Method == method && lost == 0 {
				lost++
				return errLost
			}
			return nil
		}
		a := s.execute(i)
		s.hub.after = nil
		if lost != 1 || a.Phase != v1alpha1.PhaseSucceeded {
			t.Errorf("%s: lost %d, %s %s", method, lost, a.Phase, a.Message)
		}
		if known := s.recorded(a.Name); known == nil || known.Phase != v1alpha1.PhaseSucceeded || known.WrittenVersion != a.WrittenVersion {
			t.Errorf("%s: recorded %+v", method, known)
		}
		s.expectAudit(i, writes)
	}
}

// TestExecutor_WritesNothingWithoutHub: a correction that cannot be recorded is not done.
func TestExecutor_WritesNothingWithoutHub(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	i, writes := s.intentForVerb(2, "one")
	s.hub.before = func(*http.Request) error { return errLost }
	if a, err := s.exec.execute(t.Context(), i); err == nil {
		t.Errorf("%s %s", a.Phase, a.Message)
	}
	s.hub.before = nil
	if got := s.audited("configmaps", "one"); len(got) != 1 {
		t.Errorf("written without a record: %+v", got)
	}
	if a := s.execute(i); a.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("%s %s", a.Phase, a.Message)
	}
	s.expectAudit(i, writes)
}

// TestExecutor_BadNetworkWritesNothingTwice: connections to the member are cut, reset, delayed
// and swallowed at random while corrections are under way.
func TestExecutor_BadNetworkWritesNothingTwice(t *testing.T) {
	s := newFixture(t)
	seed := seed.Of(t)
	member := shared.Fleet.Members[0]
	member.Proxy.Distance(0) // its faults are tuned to a near one
	cfg := quiet(member.RESTConfig())
	through, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer through.CloseIdleConnections()
	odds := &odds{next: through.Transport, failed: map[any]int{}}
	through.Transport = odds
	s.exec.clients = memberClients{cfg, through}

	const targets, workers = 24, 6
	queue := make(chan int, targets)
	intents, writes := make([]*Intent, targets), make([][]string, targets)
	for n := range targets {
		intents[n], writes[n] = s.intentForVerb(n%len(verbs), fmt.Sprintf("target-%d", n))
		queue <- n
	}
	close(queue)
	seen := s.witness("ConfigMap", "Secret")
	ctx, cancel := context.WithCancel(t.Context())
	var network, work sync.WaitGroup
	network.Go(func() { misbehave(ctx, member.Proxy, rand.New(rand.NewPCG(seed, 1)), odds) }) // A test's.
	var mu sync.Mutex
	names := make([]string, targets)
	for range workers {
		work.Go(func() {
			for n := range queue {
				err := until(func() error {
					a, err := s.exec.execute(context.WithValue(t.Context(), targetKey{}, n), intents[n])
					if err == nil && a.Phase != v1alpha1.PhaseSucceeded {
						err = fmt.Errorf("%s %s", a.Phase, a.Message)
					}
					mu.Lock()
					names[n] = a.Name
					mu.Unlock()
					return err
				})
				if err != nil {
					t.Errorf("target %d: %v", n, err)
				}
			}
		})
	}
	work.Wait()
	cancel()
	network.Wait()
	if err := member.Proxy.Set(tcpproxy.Mode{}); err != nil {
		t.Fatal(err)
	}
	for n := range targets {
		if known := s.recorded(names[n]); known == nil || known.Phase != v1alpha1.PhaseSucceeded {
			t.Errorf("target %d: recorded %+v", n, known)
		}
	}
	// Not the audit log: a write whose connection is reset may be executed although it was
	// answered with an error, which never arrived.
	if err := until(func() error {
		for n := range targets {
			if got := seen(intents[n].Remedy.Target.Name); len(got) < len(writes[n]) {
				return fmt.Errorf("target %d: %q", n, got)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for n := range targets {
		if got := seen(intents[n].Remedy.Target.Name); len(got) != len(writes[n]) {
			t.Errorf("target %d had the versions %q, want %d", n, got, len(writes[n]))
		}
	}
}

// witness watches objects from now on. It returns the versions that an object has had.
func (s *fixture) witness(kinds ...policy.Kind) (versions func(name string) []string) {
	s.Helper()
	var mu sync.Mutex
	seen := map[string][]string{}
	var wg sync.WaitGroup
	for _, kind := range kinds {
		w, err := s.objects(kind).Watch(s.Context(), metav1.ListOptions{})
		if err != nil {
			s.Fatal(err)
		}
		wg.Go(func() {
			for e := range w.ResultChan() {
				object, ok := e.Object.(*unstructured.Unstructured)
				if !ok {
					continue
				}
				mu.Lock()
				seen[object.GetName()] = append(seen[object.GetName()], fmt.Sprint(e.Type, " ", object.GetResourceVersion()))
				mu.Unlock()
			}
		})
		s.Cleanup(func() {
			w.Stop()
			wg.Wait()
		})
	}
	return func(name string) []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen[name])
	}
}

// misbehave changes what a proxy does until the context ends. It is well while somebody is out of luck.
func misbehave(ctx context.Context, p *tcpproxy.Proxy, random *rand.Rand, odds *odds) {
	for {
		mode := []tcpproxy.Mode{{}, {}, {State: tcpproxy.Cut}, {State: tcpproxy.BlackHole}, {Latency: 20 * time.Millisecond}}[random.IntN(5)]
		if odds.isBad() {
			mode = tcpproxy.Mode{}
		}
		if p.Set(mode) != nil {
			return // the port was lost, and corrections will say so
		}
		if sleep.For(ctx, time.Duration(5+random.IntN(100))*time.Millisecond) != nil {
			return
		}
		if !odds.isBad() {
			p.Reset()
		}
	}
}

// targetKey is the key of the target in the context of its correction.
type targetKey struct{}

// odds counts the requests of each target that failed since one was answered: a correction is tried
// maxAttempts times, which on a slow machine may all meet a connection that is reset.
type odds struct {
	next   http.RoundTripper
	mu     sync.Mutex
	failed map[any]int // by target
}

// isBad reports whether a correction has two tries left.
func (o *odds) isBad() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.failed {
		if n >= maxAttempts-2 {
			return true
		}
	}
	return false
}

func (o *odds) count(target any, answered bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if answered {
		delete(o.failed, target)
	} else {
		o.failed[target]++
	}
}

func (o *odds) RoundTrip(r *http.Request) (*http.Response, error) {
	target := r.Context().Value(targetKey{})
	resp, err := o.next.RoundTrip(r)
	if err != nil {
		o.count(target, false)
		return nil, err
	}
	resp.Body = &countedBody{resp.Body, o, target}
	return resp, nil
}

// countedBody is an answer that counts once it was read.
type countedBody struct {
	io.ReadCloser
	odds   *odds
	target any
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.odds.count(b.target, err == io.EOF)
	}
	return n, err
}
