package verdictmemory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/clitest"
)

const kind = "Deployment.apps"

const rules = `# METADATA
# title: Replicas
# custom: {severity: high, kinds: ["Deployment.apps"]}
package replicas

violation contains {"msg": "too many"} if input.object.spec.replicas > 3

violation contains {"msg": "odd"} if input.object.spec.replicas % 2 == 1

violation contains {"msg": "never"} if {
	some i, a in input.object.spec.list
	some j, b in input.object.spec.list
	i < j
	a == b
}
`

// process is what of federator evaluates policies, on the members' objects in a directory.
type process struct {
	t        *testing.T
	clock    func() time.Time
	index    *aggregate.Index
	scopes   map[string]*aggregate.Scope
	memory   *Memory
	loop     *enforce.Loop
	log      *clitest.Lines
	settled  atomic.Bool                  // all members are known
	recorded atomic.Pointer[policy.State] // the newest that the memory has recorded, which is after the loop has it
	endLoop  func()
	endWrite func()
}

// object is one of the members' objects: many of them are quadratic to evaluate.
type object struct {
	member, name string
	replicas     int
	slow         bool
}

func load(t *testing.T, text string) *policy.Set {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(text)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// start starts a process of which the scopes of some members were not read yet; "" are all, which are not even known.
func start(t *testing.T, dir string, key []byte, clock func() time.Time, text string, unread []string, objects ...object) *process {
	t.Helper()
	p := &process{t: t, clock: clock, scopes: map[string]*aggregate.Scope{}, log: &clitest.Lines{}}
	var err error
	if p.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)}); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(unread, "") {
		p.join(unread, objects)
	}
	p.memory, err = New(dir, key, slog.New(slog.NewTextHandler(p.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	p.memory.clock = clock
	p.memory.Open(func() (aggregate.Revision, bool) {
		return p.index.Snapshot().Revision(), p.settled.Load()
	})
	set := load(t, text)
	own, findings := policy.DefaultBindings(set, nil)
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	p.loop, err = enforce.New(enforce.Options{
		Index: p.index, Set: set, Bindings: own, Memory: p.memory, Clock: clock, Limits: policy.Limits{Evaluation: 20 * time.Millisecond, Overruns: 3},
		Changed: func(changes *policy.Changes, _ *aggregate.Batch) { p.recorded.Store(changes.After) },
	})
	if err != nil {
		t.Fatal(err)
	}
	p.endWrite = goes(func(ctx context.Context) { p.memory.Run(ctx) })
	p.endLoop = goes(func(ctx context.Context) {
		if err := p.loop.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(p.end)
	p.evaluated()
	return p
}

// goes runs something until what it returns is called.
func goes(run func(context.Context)) func() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	return func() { cancel(); <-done }
}

func (p *process) end() { p.endLoop(); p.endWrite() }

// kill ends a process like SIGKILL, once its files have what it has recorded: nothing more is written.
func (p *process) kill() {
	p.endLoop()
	p.wait("is written", func() bool {
		p.memory.mu.Lock()
		defer p.memory.mu.Unlock()
		return len(p.memory.pending) == 0 && !p.memory.renew && !p.memory.renewNow
	})
	p.endWrite()
}

func (p *process) wait(what string, is func() bool) {
	p.t.Helper()
	clitest.Eventually(p.t, what, func() error {
		if !is() {
			return fmt.Errorf("it is not so; log:\n%s", p.log)
		}
		return nil
	})
}

func (p *process) item(scope *aggregate.Scope, o object) aggregate.Item {
	list := ""
	if o.slow {
		var b strings.Builder
		for i := range 3000 {
			fmt.Fprintf(&b, `%s"%d"`, map[bool]string{true: ","}[i > 0], i)
		}
		list = fmt.Sprintf(`"list":[%s],`, b.String())
	}
	return scope.Item(&aggregate.Record{
		Namespace: "shop", Name: o.name, UID: o.name, ResourceVersion: fmt.Sprint(o.replicas + 1),
		Body: fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"namespace":"shop"},"spec":{%s"replicas":%d}}`, o.name, list, o.replicas),
	})
}

// read replaces what is known of a member, as a list does.
func (p *process) read(scope *aggregate.Scope, member string, objects []object) {
	p.t.Helper()
	var items []aggregate.Item
	for _, o := range objects {
		if o.member == member {
			items = append(items, p.item(scope, o))
		}
	}
	if _, err := scope.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
		p.t.Fatal(err)
	}
}

// join makes the members known, and reads all but some.
func (p *process) join(unread []string, objects []object) {
	p.t.Helper()
	for _, member := range []string{"fleet/a", "fleet/b"} {
		if err := p.index.PutMember(aggregate.Member{Name: member, UID: member}); err != nil {
			p.t.Fatal(err)
		}
		var err error
		if p.scopes[member], err = p.index.OpenScope(member, kind, "apps/v1"); err != nil {
			p.t.Fatal(err)
		}
	}
	for member, scope := range p.scopes {
		if !slices.Contains(unread, member) {
			p.read(scope, member, objects)
		}
	}
	p.settled.Store(true)
}

// put changes an object, and waits until it is evaluated.
func (p *process) put(o object) {
	p.t.Helper()
	scope := p.scopes[o.member]
	scope.Upsert(p.item(scope, o))
	if _, err := scope.Commit(); err != nil {
		p.t.Fatal(err)
	}
	p.evaluated()
}

func (p *process) evaluated() {
	p.t.Helper()
	want := p.index.Snapshot().Revision()
	p.wait("is evaluated and recorded", func() bool {
		state := p.recorded.Load()
		return state != nil && state.Snapshot.Revision() >= want
	})
}

// found returns the violations of an object, with when they were first seen.
func (p *process) found(o object) string {
	v, ok := p.loop.State().Get("replicas", policy.Subject{Ref: aggregate.Ref{Member: o.member, Kind: kind, Namespace: "shop", Name: o.name}})
	if !ok {
		return "no verdict"
	}
	if v.State == policy.Error {
		return "Error"
	}
	var out []string
	for i, x := range v.Violations {
		out = append(out, fmt.Sprintf("%s since %s", x.Msg, v.FirstSeen.At(i).Format("15:04")))
	}
	return strings.Join(out, ", ")
}

func (p *process) wants(o object, want string) {
	p.t.Helper()
	if got := p.found(o); got != want {
		p.t.Errorf("%s of %s: %q, want %q", o.name, o.member, got, want)
	}
}

// newClock returns a clock, and what sets it to a time of the day.
func newClock() (clock func() time.Time, set func(hour, minute int)) {
	var now atomic.Int64
	set = func(hour, minute int) { now.Store(time.Date(2026, 1, 1, hour, minute, 0, 0, time.UTC).Unix()) }
	set(9, 0)
	return func() time.Time { return time.Unix(now.Load(), 0).UTC() }, set
}

var syncing = aggregate.Status{State: aggregate.Syncing}
