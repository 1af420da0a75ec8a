package shards

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/test/kube/tcpproxy"
	"federator.dev/federator/test/seed"
)

// TestShards_Histories: what happens to processes that share a fleet, at random: they are killed, even several, rolled, cut off,
// given other policies, and members join and leave, while objects come and go. Once it is quiet, they answer and find what
// follows from the members; meanwhile none says that it knows what is wrong of objects that never change.
func TestShards_Histories(t *testing.T) {
	histories := 1
	if text := os.Getenv("SHARD_HISTORIES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("SHARD_HISTORIES: %v", err)
		}
		histories = n
	}
	random := rand.New(rand.NewPCG(seed.Of(t), 0))
	f := newFleet(t, setup{replication: 1 + random.IntN(2), persist: random.IntN(2) == 0})
	h := &course{fleet: f, random: random, answers: map[string]int{}}
	h.claim()
	for _, s := range f.processes {
		s.start()
	}
	f.judged("at the start")
	stop := h.watch()
	for i := range histories {
		h.play(fmt.Sprint("history ", i))
	}
	stop()
	t.Logf("%d histories: %v; answers: %v", histories, h.did, h.answers)
	if h.answers["whole"] < histories {
		t.Error("hardly any answer was whole")
	}
}

// course is what happens to a fleet.
type course struct {
	*fleet
	random *rand.Rand
	log    []string // of the history that is played
	did    map[string]int

	mu      sync.Mutex
	answers map[string]int // by what they were
}

const (
	always = "once-always" // of the first two members: each says that the other has it
	alone  = "once-alone"  // of the first one only: nobody says anything of it
)

// claim has the members have what never changes.
func (h *course) claim() {
	h.put(0, always)
	h.put(1, always)
	h.put(0, alone)
	h.did = map[string]int{}
}

// step is something that may happen.
type step struct {
	name string
	may  func() bool
	do   func()
}

func (h *course) steps() []step {
	last := len(h.kube.Members) - 1
	yes := func() bool { return true }
	return []step{
		{"write", yes, h.write},
		{"write", yes, h.write},
		{"kill", func() bool { return len(h.alive()) > 1 }, func() { h.one(h.alive()).Kill() }},
		{"kill the leader", func() bool { return len(h.alive()) == len(h.processes) }, func() { h.leader().Kill() }},
		{"start", func() bool { return len(h.dead()) > 0 }, func() { h.one(h.dead()).start() }},
		{"roll", func() bool { return len(h.alive()) > 1 }, func() {
			h.roll(h.one(h.alive()))
		}},
		{"cut off", yes, func() { h.do(h.one(h.processes).peers.Set(tcpproxy.Mode{State: tcpproxy.BlackHole})) }},
		{"heal", yes, h.heal},
		{"other policies", func() bool { return h.random.IntN(3) == 0 }, h.otherPolicies},
		{"a member leaves", func() bool { return !h.left[last] }, func() { h.leave(last) }},
		{"a member joins", func() bool { return h.left[last] }, func() { h.join(last) }},
		{"wait", func() bool { return h.random.IntN(2) == 0 }, func() { h.answering(h.one(h.alive())) }},
	}
}

// play plays a history, and compares once it is over.
func (h *course) play(name string) {
	h.t.Helper()
	h.log = nil
	for range 3 + h.random.IntN(5) {
		steps := h.steps()
		s := steps[h.random.IntN(len(steps))]
		if !s.may() {
			continue
		}
		h.log = append(h.log, s.name)
		h.did[s.name]++
		s.do()
	}
	h.heal()
	for _, s := range h.dead() {
		s.start()
	}
	what := name + ": " + strings.Join(h.log, ", ")
	h.t.Log(what)
	h.exact(what)
	h.judged(what)
}

func (h *course) one(of []*shard) *shard { return of[h.random.IntN(len(of))] }

func (h *course) dead() (out []*shard) {
	for _, s := range h.processes {
		if !s.Alive() {
			out = append(out, s)
		}
	}
	return out
}

// heal has all reach each other.
func (h *course) heal() {
	h.t.Helper()
	for _, s := range h.processes {
		h.do(s.peers.Set(tcpproxy.Mode{}))
	}
}

// write has some objects come or go.
func (h *course) write() {
	h.t.Helper()
	for range 1 + h.random.IntN(4) {
		member, name := h.random.IntN(len(h.kube.Members)), fmt.Sprint("once-", h.random.IntN(4))
		if h.has(member, name) {
			h.drop(member, name)
		} else {
			h.put(member, name)
		}
	}
}

// otherPolicies gives all the other text of the policy, one after the other.
func (h *course) otherPolicies() {
	h.t.Helper()
	if h.says == tooText {
		h.says = asWellText
	} else {
		h.says = tooText
	}
	h.do(os.WriteFile(filepath.Join(h.dir, "policies", "once.rego"), []byte(strings.ReplaceAll(once, tooText, h.says)), 0o600))
	for _, s := range h.alive() {
		h.roll(s)
	}
}

// roll ends a process in order, once it has begun to listen to signals, and starts it.
func (h *course) roll(s *shard) {
	h.t.Helper()
	h.answering(s)
	h.do(s.Stop(patience))
	s.start()
}

// leave takes a member from the hub, and join brings it back.
func (h *course) leave(i int) {
	h.t.Helper()
	namespace, name, _ := strings.Cut(memberName(i), "/")
	h.do(h.kube.Hub.Unregister(h.t.Context(), namespace, name))
	h.left[i] = true
}

func (h *course) join(i int) {
	h.t.Helper()
	h.do(h.kube.Hub.Register(h.t.Context(), cluster(i, h.kube.Members[i])))
	delete(h.left, i)
}

// has reports whether a member has a ConfigMap.
func (h *course) has(member int, name string) bool {
	h.t.Helper()
	_, err := h.kube.Members[member].Client().CoreV1().ConfigMaps("default").Get(h.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	h.do(err)
	return true
}

// answering waits until one process answers for what it can.
func (h *course) answering(s *shard) {
	h.t.Helper()
	h.until("an answer of "+s.name, func() error {
		_, _, err := s.answer(h.t.Context())
		return err
	})
}

// watch asks all processes again and again, until stop, for what they know of objects that never change.
func (h *course) watch() (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var asking sync.WaitGroup
	for _, s := range h.processes {
		asking.Go(func() {
			for ctx.Err() == nil {
				var list policyquery.ViolationList
				err := s.ask(ctx, "violations", map[string]string{"policy": "once", "limit": "1000"}, &list)
				switch {
				case ctx.Err() != nil:
				case err != nil:
					h.count("none")
				case list.Synced:
					h.count("whole")
					h.compare(s, &list)
				default:
					h.count("in part")
					h.compare(s, &list)
				}
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	return func() {
		cancel()
		asking.Wait()
	}
}

func (h *course) count(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers[what]++
}

// why is what a process says of how it came to its verdict on always, while that may still be the same.
func (h *course) why(s *shard, member string) string {
	var list policyquery.ViolationList
	var of policyquery.Explanation
	err := s.ask(h.t.Context(), "explain", map[string]string{"policy": "once", "member": member, "kind": "ConfigMap", "namespace": "default", "name": always}, &of)
	again := s.ask(h.t.Context(), "violations", map[string]string{"policy": "once", "limit": "1000"}, &list)
	return fmt.Sprintf("explained (%v): finding %+v, reads %+v, of %+v; a list after it (%v): %+v", err, of.Finding, of.Reads, of.Freshness, again, list)
}

// compare checks what an answer says of objects that never change.
func (h *course) compare(s *shard, list *policyquery.ViolationList) {
	said := map[string]string{} // of always, by member
	for i := range list.Items {
		x := &list.Items[i]
		text := x.State
		for _, v := range x.Violations {
			text += "; " + v.Msg
		}
		switch {
		case x.Subject.Name == alone && x.State == "Known" && len(x.Violations) > 0:
			h.t.Errorf("%s says of %s in %s: %s", s.name, alone, x.Subject.Member, text)
		case x.Subject.Name == always:
			said[x.Subject.Member] = text
		}
	}
	for i, other := range []string{memberName(1), memberName(0)} {
		member := memberName(i)
		text, some := said[member]
		switch {
		case !some && list.Synced && len(list.Failed) == 0:
			h.t.Errorf("%s says nothing of %s in %s, and answers for all; %s", s.name, always, member, h.why(s, member))
		case strings.HasPrefix(text, "Known") && text != "Known; "+other+tooText && text != "Known; "+other+asWellText:
			h.t.Errorf("%s says of %s in %s: %s", s.name, always, member, text)
		}
	}
}
