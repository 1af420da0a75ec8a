package persistence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// loading loads an index.
type loading struct {
	store  *Store
	index  *aggregate.Index
	loader *aggregate.Loader

	progress atomic.Int64 // what was read so far

	mu        sync.Mutex
	abandoned bool // nobody waits for it any more: the index stays as it is
	members   map[string]*loadedMember
	bridges   []bridge
}

// Bounds of how long a disk is waited for that does not answer.
const (
	stalledLoad = time.Minute
	endingLoad  = time.Second
)

var errNoAnswer = errors.New("the disk does not answer")

// load reads all, unless the disk does not answer: then what reads is left to itself, as nothing can
// end it, and does not touch the index any more.
func (l *loading) load(ctx context.Context) (Loaded, error) {
	type result struct {
		out Loaded
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := l.read(ctx)
		done <- result{out, err}
	}()
	ended := ctx.Done()
	stalled := time.NewTimer(stalledLoad)
	defer stalled.Stop()
	for last := int64(0); ; {
		select {
		case r := <-done:
			return r.out, r.err
		case <-ended:
			ended = nil
			stalled.Reset(endingLoad)
			continue
		case <-stalled.C:
		}
		if now := l.progress.Load(); now != last && ctx.Err() == nil {
			last = now
			stalled.Reset(stalledLoad)
			continue
		}
		l.mu.Lock() // it is held while the index is filled
		select {
		case r := <-done:
			l.mu.Unlock()
			return r.out, r.err
		default:
		}
		l.abandoned = true
		l.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return Loaded{}, err
		}
		return Loaded{}, fmt.Errorf("persistence: directory %s: %w", l.store.opts.Directory, errNoAnswer)
	}
}

func (l *loading) read(ctx context.Context) (Loaded, error) {
	s, out := l.store, Loaded{Dropped: map[string]error{}}
	var m manifest
	text, err := os.ReadFile(filepath.Join(s.opts.Directory, manifestName))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return out, l.clear()
	case err != nil:
		return out, fmt.Errorf("persistence: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil || m.Format != formatVersion || m.Sealed != (len(s.opts.Key) > 0) {
		out.Why = "what is on disk has another format"
		return out, l.clear()
	}
	tip, ends := aggregate.Revision(0), map[string]end(nil)
	if m.Boot != "" && m.Boot == s.opts.Boot {
		if tip, ends, err = s.readEnds(); err != nil {
			out.Why = err.Error()
		}
	} else {
		out.Why = "the machine was started since"
	}
	if first := l.index.First(); tip >= first {
		out.Why = fmt.Sprintf("revision %d on disk is not below those of this process, from %d on", tip, first)
		return out, l.clear()
	}
	if err := s.loadDictionaries(l.loader); err != nil {
		return out, fmt.Errorf("persistence: dictionaries: %w", err)
	}
	if err := l.readMembers(ctx, ends); err != nil {
		return out, fmt.Errorf("persistence: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.abandoned {
		return out, errNoAnswer
	}
	err = l.finish(&out, &m, tip, ends)
	return out, err
}

// clear removes what is on disk, which cannot be loaded.
func (l *loading) clear() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.abandoned {
		return errNoAnswer
	}
	return l.store.clear()
}

// finish fills the index. l.mu must be held.
func (l *loading) finish(out *Loaded, m *manifest, tip aggregate.Revision, ends map[string]end) error {
	s := l.store
	doubt := func(why string) { tip, out.Why = 0, why }
	for name := range ends {
		if l.members[name] == nil {
			out.Dropped[name] = errGone
			doubt("something was lost")
		}
	}
	for name, member := range l.members {
		if member.doubt != nil {
			out.Dropped[name] = member.doubt
			doubt("something was lost")
		}
		if len(member.dropped) > 0 {
			doubt("some kinds are held otherwise now")
		}
	}
	for _, b := range m.Bridges {
		l.loader.Bridge(b.Since, b.To)
	}
	var err error
	if out.Revision, err = l.loader.Finish(tip); err != nil {
		return fmt.Errorf("persistence: %w", err)
	}
	if out.Revision > 0 {
		l.bridges = append(m.Bridges, bridge{out.Revision, l.index.Snapshot().Revision()})
		l.bridges = l.bridges[max(0, len(l.bridges)-maxBridges):]
	}
	if out.Revision == 0 && out.Why == "" {
		out.Why = "what was written last does not follow what was before"
	}
	s.dropDictionaries(l.loader)
	snap := l.index.Snapshot()
	out.Objects, _ = snap.Size()
	for range snap.Members() {
		out.Members++
	}
	for range snap.Scopes("") {
		out.Scopes++
	}
	return nil
}

// readMembers reads all members, as many at a time as there are processors.
func (l *loading) readMembers(ctx context.Context, ends map[string]end) error {
	root := l.store.opts.Directory
	entries, err := os.ReadDir(filepath.Join(root, membersDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var mu sync.Mutex
	var failed error
	var running sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, e := range entries {
		name, ok := memberOf(root, e.Name())
		if !ok {
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			m, err := l.readMember(ctx, name, ends)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			l.members[name] = m
		})
	}
	running.Wait()
	return failed
}

// readMember reads one member, unless nobody has seen anything of it. A panic costs what was kept of it.
func (l *loading) readMember(ctx context.Context, name string, ends map[string]end) (m *loadedMember, err error) {
	r := &memberReader{
		loader: l.loader, key: l.store.opts.Key, name: name, dir: memberDir(l.store.opts.Directory, name), form: l.store.opts.Form,
		forms: map[aggregate.Kind]string{}, progress: &l.progress,
	}
	defer func() {
		if p := recover(); p != nil {
			l.store.opts.Log.Error("loading a member failed", "member", name, "error", p, "stack", string(debug.Stack()))
			l.loader.Remove(name)
			m, err = &loadedMember{name: name, nothing: true, doubt: fmt.Errorf("panic: %v", p)}, nil
		}
	}()
	if ends != nil {
		e, seen := ends[name]
		if !seen {
			return &loadedMember{name: name, nothing: true}, nil
		}
		r.end = &e
	}
	if err := r.load(ctx); err != nil {
		return nil, fmt.Errorf("member %q: %w", name, err)
	}
	return &r.out, nil
}
