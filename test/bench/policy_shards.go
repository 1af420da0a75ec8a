package main

import (
	"context"
	"fmt"
	"strconv"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
)

const (
	shardCount  = 3
	shardDeltas = 20_000
	shardBatch  = 20 // changes that a process which is busy takes at once
)

// shardsCost compares a fleet that three processes share with the same fleet in one.
func shardsCost(ctx context.Context, b *bench) ([]row, error) {
	objects := b.n(100_000)
	var got figures
	if err := b.child(ctx, "policy-shards", &got, b.corpus, strconv.Itoa(objects)); err != nil {
		return nil, err
	}
	cost := func(suffix, of string) row {
		return lower("shard/cpu"+suffix, "µs", got["shards"+suffix], got["one"+suffix], fmt.Sprintf("CPU of a delta%s in %d processes together, commits included, beside one process: %.2f times; %.2f records are told of each delta; what is read by name, and equal evaluations, each process makes for itself; without the way between them; goal at most 1.25 times", of, shardCount, got["shards"+suffix]/got["one"+suffix], got["told"+suffix]))
	}
	return []row{
		cost("", ""), cost("-batch", fmt.Sprintf(" of %d at once", shardBatch)),
		lower("shard/bytes", "%", 100*got["told-bytes"]/got["bytes"], 0, fmt.Sprintf("of the bytes of all objects, uncompressed, are told: of %.0f of %.0f objects; goal 8", got["records"], got["objects"])),
		lower("shard/memory", "%", 100*got["peers-memory"]/got["memory"], 0, fmt.Sprintf("of what an index of the objects of peers would take is what is held of them, %.1f MiB; %.1f MiB with all that policies might read; goal 15", got["peers-memory"]/mib, got["everything-memory"]/mib)),
	}, nil
}

// shard is one of the processes that share a fleet.
type shard struct {
	own, peers *aggregate.Index
	engine     *policy.Engine
	scopes     map[[2]string]*aggregate.Scope // of both
	at         [2]*aggregate.Cursor           // of both; the second is nil where there are no peers
}

func newShard(set *policy.Set, bindings []policy.Binding, owner policy.KeyOwner) (s *shard, err error) {
	s = &shard{scopes: map[[2]string]*aggregate.Scope{}}
	for _, x := range []**aggregate.Index{&s.own, &s.peers} {
		if *x, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), LogBytes: 8 << 20}); err != nil {
			return nil, err
		}
	}
	s.engine, err = policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings, Parallelism: 1, Exports: true, KeyOwner: owner, Subscribe: true})
	return s, err
}

func train(ctx context.Context, x *aggregate.Index) error {
	for more := true; more; {
		var err error
		if _, more, err = x.Train(ctx.Done()); err != nil {
			return err
		}
	}
	return nil
}

// fill fills a scope.
func (s *shard) fill(x *aggregate.Index, info aggregate.ScopeInfo, records func(yield func(*aggregate.Record) error) error) error {
	if former := s.scopes[[2]string{info.Member, string(info.Kind)}]; former != nil {
		former.Close()
	}
	w, err := x.OpenScope(info.Member, info.Kind, info.Version)
	if err != nil {
		return err
	}
	var items []aggregate.Item
	if err := records(func(rec *aggregate.Record) error {
		items = append(items, w.Item(rec))
		return nil
	}); err != nil {
		return err
	}
	s.scopes[[2]string{info.Member, string(info.Kind)}] = w
	_, err = w.Replace(items, info.Status)
	return err
}

func recordOf(o aggregate.Object) (aggregate.Record, error) {
	body, err := o.AppendBody(nil)
	return aggregate.Record{Namespace: o.Namespace(), Name: o.Name(), UID: o.UID(), ResourceVersion: o.ResourceVersion(), Labels: o.Labels(), Body: body}, err
}

// apply evaluates what has changed, and returns what others are to be told.
func (s *shard) apply(ctx context.Context) (policy.ExportedChanges, error) {
	var batches [2]*aggregate.Batch
	for i, c := range s.at {
		if c == nil {
			continue
		}
		if batch, some := c.Poll(); some {
			batches[i] = batch
		}
	}
	if batches[0] == nil && batches[1] == nil {
		return policy.ExportedChanges{}, nil
	}
	changes, err := s.engine.Apply(ctx, batches[0], batches[1])
	if err != nil {
		return policy.ExportedChanges{}, err
	}
	return changes.Exported(), nil
}

// shared is a fleet that shards share.
type shared struct {
	shards []*shard
	of     map[string]int // by member
}

func newShared(ctx context.Context, from *aggregate.Snapshot, set *policy.Set, bindings []policy.Binding, out figures) (*shared, error) {
	f := &shared{of: map[string]int{}}
	ids := []string{"0", "1", "2"}
	for _, id := range ids {
		s, err := newShard(set, bindings, policy.KeyOwner{Self: id, Now: ids})
		if err != nil {
			return nil, err
		}
		f.shards = append(f.shards, s)
	}
	n := 0
	for m := range from.Members() {
		i := n % shardCount
		f.of[m.Name] = i
		n++
		for j, s := range f.shards {
			x := s.peers
			if i == j {
				x = s.own
			}
			if err := x.PutMember(m); err != nil {
				return nil, err
			}
		}
		for info := range from.Scopes(m.Name) {
			err := f.shards[i].fill(f.shards[i].own, info, func(yield func(*aggregate.Record) error) error {
				list, err := from.List(aggregate.Query{Kind: info.Kind, Members: []string{m.Name}})
				if err != nil {
					return err
				}
				for o := range list {
					rec, err := recordOf(o)
					if err != nil {
						return err
					}
					out["objects"]++
					out["bytes"] += float64(len(rec.Body))
					if err := yield(&rec); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	for _, s := range f.shards {
		if err := train(ctx, s.own); err != nil {
			return nil, err
		}
		if _, err := s.engine.Reset(ctx, s.own.Snapshot(), s.peers.Snapshot()); err != nil {
			return nil, err
		}
	}
	all := figures{}
	if err := f.tellAll(ctx, all, func(*shard) *interest.Set { return interest.Everything() }); err != nil {
		return nil, err
	}
	out["everything-memory"] = all["peers-memory"]
	return f, f.ask(ctx, out)
}

// ask has all told what they ask for, until nobody asks for more.
func (f *shared) ask(ctx context.Context, out figures) error {
	for {
		out["records"], out["told-bytes"], out["peers-memory"] = 0, 0, 0
		before := map[*shard]*interest.Set{}
		for _, s := range f.shards {
			before[s] = s.engine.State().Wanted()
		}
		if err := f.tellAll(ctx, out, func(s *shard) *interest.Set { return before[s] }); err != nil {
			return err
		}
		more := false
		for _, s := range f.shards {
			if _, err := s.engine.SetHeld(ctx, before[s]); err != nil {
				return err
			}
			more = more || !before[s].Covers(s.engine.State().Wanted())
		}
		if !more {
			return nil
		}
	}
}

// grow has a shard told what it has begun to ask for.
func (f *shared) grow(ctx context.Context, s *shard) error {
	state := s.engine.State()
	wanted := state.Wanted()
	if state.Held().Covers(wanted) {
		return nil
	}
	var rec aggregate.Record
	for _, from := range f.shards {
		if from == s {
			continue
		}
		x := from.engine.State().Export()
		err := x.Find(wanted.Without(state.Held()), func() error { return nil }, func(ref aggregate.Ref) error {
			if is, err := x.Record(ref, &rec); err != nil || !is {
				return err
			}
			w := s.scopes[[2]string{ref.Member, string(ref.Kind)}]
			w.Upsert(w.Item(&rec))
			_, err := w.Commit()
			return err
		})
		if err != nil {
			return err
		}
	}
	if _, err := s.apply(ctx); err != nil {
		return err
	}
	_, err := s.engine.SetHeld(ctx, wanted)
	return err
}

// tellAll has all tell the others what they ask for.
func (f *shared) tellAll(ctx context.Context, out figures, asked func(*shard) *interest.Set) error {
	var keys interest.Keys
	for i, s := range f.shards {
		x := s.engine.State().Export()
		for m := range x.Members() {
			for info := range x.Scopes(m.Name) {
				for j, other := range f.shards {
					if i == j {
						continue
					}
					err := other.fill(other.peers, info, func(yield func(*aggregate.Record) error) error {
						return x.Records(m.Name, info.Kind, func(rec *aggregate.Record) error {
							x.KeysOf(aggregate.Ref{Member: m.Name, Kind: info.Kind, Namespace: rec.Namespace, Name: rec.Name}, &keys)
							if !asked(other).Wants(&keys) {
								return nil
							}
							if j == (i+1)%shardCount {
								out["records"]++
								out["told-bytes"] += float64(len(rec.Body))
							}
							return yield(rec)
						})
					})
					if err != nil {
						return err
					}
				}
			}
		}
	}
	held := 0.0
	for _, s := range f.shards {
		if err := train(ctx, s.peers); err != nil {
			return err
		}
		_, peers := s.peers.Snapshot().Size()
		_, own := s.own.Snapshot().Size()
		out["peers-memory"] += float64(peers)
		held += float64(own)
		if _, err := s.engine.Reset(ctx, s.own.Snapshot(), s.peers.Snapshot()); err != nil {
			return err
		}
		s.at = [2]*aggregate.Cursor{s.own.Cursor(s.own.Snapshot()), s.peers.Cursor(s.peers.Snapshot())}
	}
	out["memory"] = held * (shardCount - 1)
	return nil
}

// change is one of an object.
type change struct {
	ref aggregate.Ref
	rec aggregate.Record
}

// change commits changes in their processes, has these evaluate them, and has the others told.
func (f *shared) change(ctx context.Context, changes []change) (told int, err error) {
	touched := map[*aggregate.Scope]bool{}
	for i := range changes {
		c := &changes[i]
		w := f.shards[f.of[c.ref.Member]].scopes[[2]string{c.ref.Member, string(c.ref.Kind)}]
		w.Upsert(w.Item(&c.rec))
		touched[w] = true
	}
	if err := commitAll(touched); err != nil {
		return 0, err
	}
	for _, s := range f.shards {
		changes, err := s.apply(ctx)
		if err != nil {
			return 0, err
		}
		n, err := f.tell(s, changes.Objects, touched)
		if err != nil {
			return 0, err
		}
		told += n
	}
	if err := commitAll(touched); err != nil {
		return told, err
	}
	for _, s := range f.shards {
		if _, err := s.apply(ctx); err != nil {
			return told, err
		}
	}
	for _, s := range f.shards {
		if err := f.grow(ctx, s); err != nil {
			return told, err
		}
	}
	return told, nil
}

// commitAll commits scopes, and forgets them.
func commitAll(touched map[*aggregate.Scope]bool) error {
	for w := range touched {
		if _, err := w.Commit(); err != nil {
			return err
		}
	}
	clear(touched)
	return nil
}

// tell has the others told of objects of a process, and returns of how many they were.
func (f *shared) tell(s *shard, refs []aggregate.Ref, touched map[*aggregate.Scope]bool) (told int, err error) {
	x := s.engine.State().Export()
	var out aggregate.Record
	var keys interest.Keys
	for _, ref := range refs {
		is, err := x.Record(ref, &out)
		if err != nil {
			return told, err
		}
		out.Update = true
		x.KeysOf(ref, &keys)
		wanted := false
		for _, other := range f.shards {
			if other == s {
				continue
			}
			held, has := other.peers.Snapshot().Get(ref)
			wants := other.engine.State().Wanted().Wants(&keys)
			if !wants && (!has || held.IsZero()) {
				continue
			}
			wanted = true
			w := other.scopes[[2]string{ref.Member, string(ref.Kind)}]
			if is && wants {
				w.Upsert(w.Item(&out))
			} else {
				w.Delete(ref.Namespace, ref.Name)
			}
			touched[w] = true
		}
		if wanted {
			told++
		}
	}
	return told, nil
}
