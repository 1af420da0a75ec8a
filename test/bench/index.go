package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/sim/siblings"
)

// indexReads measures the index by itself: 1,000,000 pods of 20 members, each
// beside a map under an RWMutex, which is what most caches are.
func indexReads(ctx context.Context, b *bench) ([]row, error) {
	set, err := newPodSet(b.corpus, 20, b.n(50_000))
	if err != nil {
		return nil, err
	}
	index, scopes, err := set.fill(ctx)
	if err != nil {
		return nil, err
	}
	m := set.locked()
	b.progress("   %d pods are in", set.members*set.perMember)
	rows := []row{benchGet(index, m, set)}
	list, err := benchList(index, m, set)
	if err != nil {
		return rows, err
	}
	rows = append(rows, list...)
	return append(rows, benchCommit(index, scopes, m, set)...), nil
}

// podSet makes pods cheaply: bodies of real siblings, written over in place
// with each pod's own name and uid.
type podSet struct {
	members, perMember int
	bodies             [][]byte // canonical JSON
	records            []aggregate.Record
}

// rare is the label that one pod in a hundred has.
const rare = "bench/rare"

func newPodSet(corpus string, members, perMember int) (*podSet, error) {
	const distinct = 2000
	pods, err := siblings.Open(corpus).Pods(distinct, 100, 1)
	if err != nil {
		return nil, err
	}
	s := &podSet{members: members, perMember: perMember}
	for i := range distinct {
		raw, err := pods.JSON(i)
		if err != nil {
			return nil, err
		}
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, err
		}
		meta := m["metadata"].(map[string]any)
		delete(meta, "managedFields")
		body, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		rec := aggregate.Record{Namespace: meta["namespace"].(string)}
		if ls, ok := meta["labels"].(map[string]any); ok {
			for k, v := range ls {
				rec.Labels = append(rec.Labels, aggregate.Label{Key: k, Value: fmt.Sprint(v)})
			}
		}
		s.bodies = append(s.bodies, body)
		s.records = append(s.records, rec)
	}
	return s, nil
}

func (s *podSet) member(m int) string { return "bench/member-" + strconv.Itoa(m) }

func (s *podSet) name(m, i int) string { return fmt.Sprintf("pod-%02d-%06d", m, i) }

// record fills in the record of one pod at one version.
func (s *podSet) record(rec *aggregate.Record, m, i, version int) {
	t := (m*s.perMember + i) % len(s.bodies)
	*rec = aggregate.Record{
		Namespace: s.records[t].Namespace, Name: s.name(m, i), ResourceVersion: strconv.Itoa(version),
		UID:    fmt.Sprintf("%08x-0000-4000-8000-%012x", m, i),
		Labels: s.records[t].Labels, Body: s.bodies[t],
	}
	if i%100 == 0 {
		rec.Labels = append(rec.Labels[:len(rec.Labels):len(rec.Labels)], aggregate.Label{Key: rare, Value: "yes"})
	}
}

func (s *podSet) fill(ctx context.Context) (*aggregate.Index, []*aggregate.Scope, error) {
	return s.fillInto(ctx, aggregate.Options{Revisions: aggregate.Block(1)})
}

func (s *podSet) fillInto(ctx context.Context, o aggregate.Options) (*aggregate.Index, []*aggregate.Scope, error) {
	x, err := aggregate.New(o)
	if err != nil {
		return nil, nil, err
	}
	var scopes []*aggregate.Scope
	for m := range s.members {
		if err := x.PutMember(aggregate.Member{Name: s.member(m), UID: s.member(m)}); err != nil {
			return nil, nil, err
		}
		scope, err := x.OpenScope(s.member(m), "Pod", "v1")
		if err != nil {
			return nil, nil, err
		}
		items := make([]aggregate.Item, s.perMember)
		var rec aggregate.Record
		for i := range items {
			s.record(&rec, m, i, i+1)
			items[i] = scope.Item(&rec)
		}
		if _, err := scope.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
			return nil, nil, err
		}
		if _, _, err := x.Train(ctx.Done()); err != nil {
			return nil, nil, err
		}
		scopes = append(scopes, scope)
	}
	return x, scopes, nil
}

// lockedMap is the alternative: decoded nothing, compressed nothing.
type lockedMap struct {
	mu   sync.RWMutex
	pods map[aggregate.Ref]*lockedPod
}

type lockedPod struct {
	labels []aggregate.Label
	body   []byte
}

func (s *podSet) locked() *lockedMap {
	m := &lockedMap{pods: make(map[aggregate.Ref]*lockedPod, s.members*s.perMember)}
	var rec aggregate.Record
	for i := range s.members {
		for j := range s.perMember {
			s.record(&rec, i, j, 1)
			m.pods[aggregate.Ref{Member: s.member(i), Kind: "Pod", Namespace: rec.Namespace, Name: rec.Name}] = &lockedPod{rec.Labels, rec.Body}
		}
	}
	return m
}

func (m *lockedMap) list(key, value string) (n int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, p := range m.pods {
		for _, l := range p.labels {
			if l.Key == key && l.Value == value {
				n += len(p.body)
				break
			}
		}
	}
	return n
}

func benchGet(x *aggregate.Index, m *lockedMap, s *podSet) row {
	refs := make([]aggregate.Ref, 4096)
	var rec aggregate.Record
	for i := range refs {
		member, pod := rand.IntN(s.members), rand.IntN(s.perMember)
		s.record(&rec, member, pod, 1)
		refs[i] = aggregate.Ref{Member: s.member(member), Kind: "Pod", Namespace: rec.Namespace, Name: rec.Name}
	}
	const n = 1_000_000
	ours := perOp(n, func(i int) {
		if _, ok := x.Snapshot().Get(refs[i%len(refs)]); !ok {
			panic("bench: a pod is not there")
		}
	})
	theirs := perOp(n, func(i int) {
		m.mu.RLock()
		_, ok := m.pods[refs[i%len(refs)]]
		m.mu.RUnlock()
		if !ok {
			panic("bench: a pod is not there")
		}
	})
	return lower("index/get", "ns", ours, theirs, "metadata of one of 1,000,000; baseline a locked map")
}

func perOp(n int, f func(int)) float64 {
	runtime.GC()
	started := time.Now()
	for i := range n {
		f(i)
	}
	return float64(time.Since(started).Nanoseconds()) / float64(n)
}

func benchList(x *aggregate.Index, m *lockedMap, s *podSet) ([]row, error) {
	sel, err := labels.Parse(rare + "=yes")
	if err != nil {
		return nil, err
	}
	want := s.members * ((s.perMember + 99) / 100)
	var buf []byte
	var failed error
	run := func(bodies bool) func(int) {
		return func(int) {
			objects, err := x.Snapshot().List(aggregate.Query{Kind: "Pod", Labels: sel})
			if err != nil {
				failed = err
				return
			}
			got := 0
			for o := range objects {
				got++
				if bodies {
					if buf, failed = o.AppendBody(buf[:0]); failed != nil {
						return
					}
				}
			}
			if got != want {
				failed = fmt.Errorf("list returned %d of %d", got, want)
			}
		}
	}
	theirs := perOp(5, func(int) { m.list(rare, "yes") }) / 1e6
	note := fmt.Sprintf("%d by label of %d", want, s.members*s.perMember)
	return []row{
		lower("index/list10k", "ms", perOp(10, run(false))/1e6, theirs, note+"; baseline a scan of a locked map"),
		lower("index/list10k_bodies", "ms", perOp(10, run(true))/1e6, theirs, note+", every body decoded to JSON"),
	}, failed
}

// benchCommit measures single-object commits while 8 readers list.
func benchCommit(x *aggregate.Index, scopes []*aggregate.Scope, m *lockedMap, s *podSet) []row {
	sel, _ := labels.Parse(rare + "=yes") //nolint:errcheck // a constant
	const n = 3000
	ours := underReaders(n, func() {
		objects, err := x.Snapshot().List(aggregate.Query{Kind: "Pod", Labels: sel})
		if err == nil {
			for o := range objects {
				_ = o.Revision()
			}
		}
	}, func(i int) time.Duration {
		member := i % s.members
		var rec aggregate.Record
		s.record(&rec, member, rand.IntN(s.perMember), s.perMember+i+2)
		item := scopes[member].Item(&rec)
		started := time.Now()
		scopes[member].Upsert(item)
		if _, err := scopes[member].Commit(); err != nil {
			panic(err)
		}
		return time.Since(started)
	})
	theirs := underReaders(n/30, func() { m.list(rare, "yes") }, func(i int) time.Duration {
		member := i % s.members
		var rec aggregate.Record
		s.record(&rec, member, rand.IntN(s.perMember), 2)
		ref := aggregate.Ref{Member: s.member(member), Kind: "Pod", Namespace: rec.Namespace, Name: strings.Clone(rec.Name)}
		p := &lockedPod{rec.Labels, rec.Body}
		started := time.Now()
		m.mu.Lock()
		m.pods[ref] = p
		m.mu.Unlock()
		return time.Since(started)
	})
	note := fmt.Sprintf("8 readers list 10,000 of 1,000,000 on %d cores; p50 %.3f ms, locked map %.3f", runtime.GOMAXPROCS(0), ms(ours, 0.5), ms(theirs, 0.5))
	return []row{lower("index/commit_p99_under_readers", "ms", ms(ours, 0.99), ms(theirs, 0.99), note)}
}

func underReaders(n int, read func(), commit func(int) time.Duration) []time.Duration {
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !done.Load() {
				read()
			}
		})
	}
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = commit(i)
	}
	done.Store(true)
	wg.Wait()
	return out
}
