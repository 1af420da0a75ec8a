package verdictmemory

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"federator.dev/federator/pkg/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
