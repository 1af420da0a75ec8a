package verdictmemory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 20 * time.Second
	kind     = "Deployment.apps"
)

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
	log      *safeBuffer
	settled  atomic.Bool // all members are known
	endLoop  func()
	endWrite func()
}

type safeBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
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
	p := &process{t: t, clock: clock, scopes: map[string]*aggregate.Scope{}, log: &safeBuffer{}}
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
	p.wait("is evaluated", func() bool { return p.loop.State() != nil })
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
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("it never %s; log:\n%s", what, p.log)
		}
	}
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
	p.wait("is evaluated", func() bool { return p.loop.State().Snapshot.Revision() >= want })
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

func TestMemory_RecallsWhatLastsOverAKill(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testRecall(t, nil) })
	t.Run("encrypted", func(t *testing.T) { testRecall(t, bytes.Repeat([]byte{7}, 32)) })
}

func testRecall(t *testing.T, key []byte) {
	dir := t.TempDir()
	clock, set := newClock()
	a, b, c := object{member: "fleet/a", name: "a", replicas: 5}, object{member: "fleet/a", name: "b", replicas: 1}, object{member: "fleet/b", name: "c", replicas: 4}
	p := start(t, dir, key, clock, rules, nil, a, b, c)
	p.wants(a, "odd since 09:00, too many since 09:00")
	set(9, 10)
	b.replicas = 7
	p.put(b)
	p.wants(b, "odd since 09:00, too many since 09:10")
	set(9, 15)
	c.replicas = 2
	p.put(c)
	c.replicas = 6 // it was gone
	set(9, 20)
	p.put(c)
	p.kill()

	set(10, 0)
	a.replicas = 3 // one was corrected while nobody looked
	p = start(t, dir, key, clock, rules, []string{"fleet/b"}, a, b, c)
	p.wants(a, "odd since 09:00")
	p.wants(b, "odd since 09:00, too many since 09:10")
	p.kill() // before the other member was read

	set(10, 10)
	p = start(t, dir, key, clock, rules, []string{"fleet/b"}, a, b, c)
	set(10, 20)
	p.read(p.scopes["fleet/b"], "fleet/b", []object{c})
	p.evaluated()
	p.wants(c, "too many since 09:20")
	p.put(object{member: "fleet/a", name: "a", replicas: 4})
	p.wants(a, "too many since 10:20") // what earlier processes knew is forgotten
	p.kill()

	set(11, 0)
	p = start(t, dir, key, clock, rules, nil, a, b, c)
	p.wants(a, "odd since 11:00")
	p.wants(b, "odd since 09:00, too many since 09:10")
	p.wants(c, "too many since 09:20")
}

// TestMemory_QuarantineLasts: a member whose objects use up their time is not evaluated by the process
// that comes next, until the quarantine ends; what was found before keeps its time.
func TestMemory_QuarantineLasts(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testQuarantine(t, nil) })
	t.Run("encrypted", func(t *testing.T) { testQuarantine(t, bytes.Repeat([]byte{7}, 32)) })
}

func testQuarantine(t *testing.T, key []byte) {
	dir := t.TempDir()
	clock, set := newClock()
	good := object{member: "fleet/a", name: "good", replicas: 4}
	objects := []object{good, {member: "fleet/b", name: "other", replicas: 4}}
	p := start(t, dir, key, clock, rules, nil, objects...)
	set(9, 1)
	for i := range 4 {
		o := object{member: "fleet/a", name: fmt.Sprint("slow", i), slow: true}
		objects = append(objects, o)
		p.put(o)
	}
	quarantines := func() []policy.KeptQuarantine {
		var out []policy.KeptQuarantine
		h, _ := p.loop.State().Health("replicas")
		for _, q := range h.Quarantines {
			k := policy.KeptQuarantine{Of: "replicas"}
			k.Member, k.Reason, k.Until = q.Member, q.Reason, q.Until
			out = append(out, k)
		}
		return out
	}
	before := quarantines()
	p.wait("is written", func() bool {
		c, err := Inspect(dir, key)
		return err == nil && c == Contents{Violations: 2, Quarantines: 1}
	})
	if len(before) != 1 || before[0].Member != "fleet/a" {
		t.Fatalf("quarantines: %+v", before)
	}
	p.kill()
	if text, err := os.ReadFile(quarantinesFile(dir)); err != nil || bytes.Contains(text, []byte("fleet/a")) != (key == nil) {
		t.Errorf("%q, %v", text, err)
	}
	for range 2 { // the second one finds what the first has written
		p = start(t, dir, key, clock, rules, nil, objects...)
		if got := quarantines(); len(got) != 1 || got[0] != before[0] {
			t.Errorf("quarantines: %+v, want %+v", got, before)
		}
		p.wants(good, "Error")
		p.wants(objects[1], "too many since 09:00")
		p.kill()
	}
	set(9, 3)
	p = start(t, dir, key, clock, rules, nil, objects[:2]...)
	p.wants(good, "too many since 09:00")
	p.kill()

	p = start(t, dir, key, clock, strings.Replace(rules, "> 3", "> 2", 1), nil, objects...) // an edit ends them
	p.wants(objects[1], "too many since 09:00")
}

// TestMemory_RecallsWhatMembersHaveThatComeLater: a process whose index was lost knows no member when it
// evaluates policies for the first time.
func TestMemory_RecallsWhatMembersHaveThatComeLater(t *testing.T) {
	dir := t.TempDir()
	clock, set := newClock()
	a := object{member: "fleet/a", name: "a", replicas: 5}
	start(t, dir, nil, clock, rules, nil, a).kill()
	set(10, 0)
	p := start(t, dir, nil, clock, rules, []string{""})
	p.join(nil, []object{a})
	p.evaluated()
	p.wants(a, "odd since 09:00, too many since 09:00")
	a.replicas = 2
	p.put(a)
	a.replicas = 4
	p.put(a)
	p.wants(a, "too many since 10:00")
}

// TestMemory_FullDiskLosesNothing: what could not be written is, once the disk takes it again.
func TestMemory_FullDiskLosesNothing(t *testing.T) {
	dir := t.TempDir()
	clock, set := newClock()
	a := object{member: "fleet/a", name: "a", replicas: 5}
	p := start(t, dir, nil, clock, rules, nil, a)
	p.wait("is written", func() bool { _, err := os.Stat(seenFile(dir)); return err == nil })
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	set(9, 5)
	p.memory.mu.Lock()
	p.memory.renew = true // otherwise the file that is open takes it
	p.memory.mu.Unlock()
	b := object{member: "fleet/a", name: "b", replicas: 4}
	p.put(b)
	p.wait("says so", func() bool { return strings.Contains(p.log.String(), "is not kept") })
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	p.end() // it is tried a last time
	set(10, 0)
	p = start(t, dir, nil, clock, rules, nil, a, b)
	p.wants(a, "odd since 09:00, too many since 09:00")
	p.wants(b, "too many since 09:05")
}

// TestMemory_IsRewritten: a violation that comes and goes all the time does not fill the disk.
func TestMemory_IsRewritten(t *testing.T) {
	dir := t.TempDir()
	m, err := New(dir, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f, size, err := replace(seenFile(dir), func(w io.Writer) error { _, err := w.Write([]byte(plainMagic)); return err })
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{memory: m, file: f, size: size, rewrote: size}
	defer func() { w.file.Close() }()
	state := start(t, t.TempDir(), nil, time.Now, rules, nil).loop.State()
	for i := range 100_000 {
		m.mu.Lock()
		m.state, m.pending = state, m.secrets.appendRecord(m.pending, 1, policy.Seen{Violation: uint64(i % 7), At: int64(i % 2)})
		m.mu.Unlock()
		if i%100 == 0 {
			if err := w.write(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if info, err := os.Stat(seenFile(dir)); err != nil || info.Size() > slack+1<<16 {
		t.Errorf("%v, %v", info.Size(), err)
	}
}

// TestMemory_CleanIsNotRecalled: what a process has found to be gone is new when it comes back, also while
// another member is not read, and in a process that comes later.
func TestMemory_CleanIsNotRecalled(t *testing.T) {
	dir := t.TempDir()
	clock, set := newClock()
	a := object{member: "fleet/a", name: "a", replicas: 4}
	for i, replicas := range []int{4, 2, 2, 4} {
		set(9+i, 0)
		a.replicas = replicas
		p := start(t, dir, nil, clock, rules, []string{"fleet/b"}, a)
		if i == 1 {
			p.wants(a, "")
			set(10, 30)
			a.replicas = 6
			p.put(a)
			p.wants(a, "too many since 10:30")
			a.replicas = 2
			p.put(a)
		}
		if i == 3 {
			p.wants(a, "too many since 12:00")
		}
		p.kill()
	}
}

// TestMemory_FailureAtStartKeepsTimes: an evaluation that fails in a process that has just started, as on a
// busy machine, says nothing about what was there.
func TestMemory_FailureAtStartKeepsTimes(t *testing.T) {
	dir := t.TempDir()
	clock, set := newClock()
	a := object{member: "fleet/a", name: "a", replicas: 4}
	start(t, dir, nil, clock, rules, nil, a).kill()
	for i := range 2 {
		set(10+i, 0)
		a.slow = true
		p := start(t, dir, nil, clock, rules, nil, a)
		p.wants(a, "Error")
		p.kill()
	}
	p := start(t, dir, nil, clock, rules, nil, a)
	a.slow = false
	a.replicas = 6
	p.put(a)
	p.wants(a, "too many since 09:00")
}

// TestMemory_QuarantineIsOfItsRules: a binding with other rules, which may be there first, takes none.
func TestMemory_QuarantineIsOfItsRules(t *testing.T) {
	m, err := New(t.TempDir(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m.kept = []policy.KeptQuarantine{{Of: "binding replicas", Digest: "hub"}}
	for i, digest := range []string{"default", "hub", "hub"} {
		if got := m.Quarantines("binding replicas", digest); len(got) != i%2 {
			t.Errorf("%d: %v", i, got)
		}
	}
}

// TestMemory_OtherKeyIsNoKey: what another key has written is not recalled, and said.
func TestMemory_OtherKeyIsNoKey(t *testing.T) {
	dir := t.TempDir()
	clock, set := newClock()
	a := object{member: "fleet/a", name: "a", replicas: 4}
	start(t, dir, bytes.Repeat([]byte{7}, 32), clock, rules, nil, a).kill()
	set(10, 0)
	p := start(t, dir, bytes.Repeat([]byte{8}, 32), clock, rules, nil, a)
	p.wants(a, "too many since 10:00")
	if !strings.Contains(p.log.String(), "not as it was written") {
		t.Errorf("log: %s", p.log)
	}
}
