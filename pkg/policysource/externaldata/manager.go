package externaldata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/policy"
)

// Status is what is known of a document.
type Status struct {
	Key    string
	Known  bool      // verdicts that read it are Known
	From   string    // where the content was read, and the version there
	Digest string    // of the content, as its JSON; "": there is none
	Bytes  int       // of its JSON
	At     time.Time // when the content was last found to be so; zero: never
	Next   time.Time // when it is read next; zero: when its source changes
	// Reason is in CamelCase: Current, or why it could not be read. Message says where.
	Reason, Message string
}

// State is what is known of all documents. It is immutable.
type State struct {
	// External are the documents for policies: nil before the first SetSources.
	External *policy.External
	// Status is by source, in the order of its documents.
	Status map[string][]Status

	replaced chan struct{}
}

// Replaced is closed when there is a newer state.
func (s *State) Replaced() <-chan struct{} { return s.replaced }

// Manager reads the documents of sources. See the package's documentation.
type Manager struct {
	opts    Options
	state   atomic.Pointer[State]
	started atomic.Bool
	changed trigger.Trigger // wanted has changed
	updates chan update

	mu      sync.Mutex
	wanted  []Source // nil: SetSources has not been called
	runners map[name]*runner
}

type name struct{ source, key string }

// update is what is known of a document from now on.
type update struct {
	*runner

	document policy.ExternalDocument
	status   Status
}

// NewManager returns a manager of which nothing is known yet.
func NewManager(opts Options) (*Manager, error) {
	opts, err := opts.validate()
	if err != nil {
		return nil, err
	}
	m := &Manager{opts: opts, changed: trigger.New(), updates: make(chan update), runners: map[name]*runner{}}
	m.state.Store(&State{replaced: make(chan struct{})})
	return m, nil
}

// State returns the current state.
func (m *Manager) State() *State { return m.state.Load() }

// SetSources replaces the sources. Documents that stay as they are named keep what is known of them.
func (m *Manager) SetSources(sources []Source) error {
	if err := checkSources(sources); err != nil {
		return err
	}
	m.mu.Lock()
	m.wanted = append([]Source{}, sources...)
	m.mu.Unlock()
	m.changed.Fire()
	return nil
}

// Sync has all documents of a source read again now.
func (m *Manager) Sync(source string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, r := range m.runners {
		if n.source == source {
			r.triggered.Fire()
		}
	}
}

// Trigger has files read again, after sources may have other commits.
func (m *Manager) Trigger() {
	m.fire(func(d *Document) bool { return d.File != "" })
}

// TriggerConfigMap has documents in a ConfigMap read again.
func (m *Manager) TriggerConfigMap(configMap string) {
	m.fire(func(d *Document) bool { return d.ConfigMap != nil && d.ConfigMap.Name == configMap })
}

func (m *Manager) fire(which func(*Document) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runners {
		if which(&r.spec) {
			r.triggered.Fire()
		}
	}
}

// Run reads documents until the context ends, and returns when all of its goroutines have ended. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return errors.New("external data: Run is called twice")
	}
	p := &publisher{m: m, documents: map[string]map[string]policy.ExternalDocument{}, status: map[name]Status{}}
	defer m.stop(func(name, *runner) bool { return true })
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.changed:
			p.reconcile(ctx)
		case u := <-m.updates:
			p.update(&u)
		}
	}
}

// stop ends runners and waits for them. Only Run calls it.
func (m *Manager) stop(which func(name, *runner) bool) {
	var ending []*runner
	m.mu.Lock()
	for n, r := range m.runners {
		if which(n, r) {
			ending = append(ending, r)
			delete(m.runners, n)
		}
	}
	m.mu.Unlock()
	for _, r := range ending {
		r.cancel()
	}
	for _, r := range ending {
		<-r.done
	}
}

// publisher is the state of Run.
type publisher struct {
	m         *Manager
	sources   []Source
	external  *policy.External
	documents map[string]map[string]policy.ExternalDocument // as they are in external
	status    map[name]Status
}

// reconcile starts and stops runners for the wanted documents.
func (p *publisher) reconcile(ctx context.Context) {
	m := p.m
	m.mu.Lock()
	p.sources = m.wanted
	m.mu.Unlock()
	named := map[name]Document{}
	for _, s := range p.sources {
		for _, d := range s.Documents {
			named[name{s.Name, d.Key}] = d
		}
	}
	stays := func(n name, r *runner) bool {
		d, ok := named[n]
		return ok && reflect.DeepEqual(d, r.spec)
	}
	m.stop(func(n name, r *runner) bool { return !stays(n, r) })
	was := p.documents
	p.documents = map[string]map[string]policy.ExternalDocument{}
	var start []*runner
	m.mu.Lock()
	for n, d := range named {
		of := p.documents[n.source]
		if of == nil {
			of = map[string]policy.ExternalDocument{}
			p.documents[n.source] = of
		}
		if m.runners[n] != nil {
			of[n.key] = was[n.source][n.key]
			continue
		}
		of[n.key] = policy.ExternalDocument{Problem: "it has not been read yet", Pending: true}
		p.status[n] = Status{Key: n.key, Reason: "NotRead", Message: "it has not been read yet"}
		r := &runner{m: m, source: n.source, spec: d, done: make(chan struct{}), triggered: trigger.New()}
		m.runners[n] = r
		start = append(start, r)
	}
	m.mu.Unlock()
	for n := range p.status {
		if _, ok := named[n]; !ok {
			delete(p.status, n)
		}
	}
	if p.external == nil {
		p.external = policy.NoExternal()
	}
	for source := range p.external.Sources() {
		if p.documents[source] == nil {
			p.external = p.external.Without(source)
		}
	}
	for source, documents := range p.documents {
		p.set(source, documents)
	}
	p.publish()
	for _, r := range start {
		var own context.Context
		own, r.cancel = context.WithCancel(ctx)
		go r.run(own)
	}
}

// set sets the documents of a source.
func (p *publisher) set(source string, documents map[string]policy.ExternalDocument) {
	next, err := p.external.With(source, documents)
	if err != nil { // DecodeExternal has taken each
		p.m.opts.Logger.Error("external documents cannot be used", "source", source, "error", err)
		return
	}
	p.documents[source], p.external = documents, next
}

// update takes in what is known of a document.
func (p *publisher) update(u *update) {
	n := name{u.source, u.spec.Key}
	p.m.mu.Lock()
	current := p.m.runners[n] == u.runner
	p.m.mu.Unlock()
	if !current {
		return // it was stopped since
	}
	was := p.documents[n.source][n.key]
	if len(u.document.JSON) > len(was.JSON) && p.total()+len(u.document.JSON)-len(was.JSON) > maxTotal {
		u.document = was
		u.document.Problem, u.document.Pending = fmt.Sprintf("all external documents together would have more than %d bytes", maxTotal), false
		u.status.Known, u.status.Reason, u.status.Message = false, "TooLarge", u.document.Problem
		u.status.From, u.status.Bytes, u.status.At = was.From, len(was.JSON), was.At
	}
	if !sameForPolicies(&was, &u.document) {
		next := maps.Clone(p.documents[n.source])
		next[n.key] = u.document
		p.set(n.source, next)
	}
	u.status.Digest = p.external.DigestOf(n.source, n.key)
	if before := p.status[n]; before.Reason != u.status.Reason || before.Message != u.status.Message {
		log := p.m.opts.Logger.Info
		if !u.status.Known {
			log = p.m.opts.Logger.Warn
		}
		log("external document", "source", n.source, "key", n.key, "reason", u.status.Reason, "message", u.status.Message)
	}
	p.status[n] = u.status
	p.publish()
}

func (p *publisher) total() (n int) {
	for _, documents := range p.documents {
		for _, d := range documents {
			n += len(d.JSON)
		}
	}
	return n
}

// sameForPolicies reports whether policies see the same of two documents.
func sameForPolicies(a, b *policy.ExternalDocument) bool {
	return a.Problem == b.Problem && a.Pending == b.Pending && (a.JSON == nil) == (b.JSON == nil) && slices.Equal(a.JSON, b.JSON)
}

func (p *publisher) publish() {
	s := &State{External: p.external, Status: make(map[string][]Status, len(p.sources)), replaced: make(chan struct{})}
	for _, source := range p.sources {
		for _, d := range source.Documents {
			s.Status[source.Name] = append(s.Status[source.Name], p.status[name{source.Name, d.Key}])
		}
	}
	was := p.m.state.Swap(s)
	close(was.replaced)
}
