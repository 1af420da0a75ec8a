package sim

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Options say what a fleet starts with. The zero value is a fleet without members.
type Options struct {
	Members  int           // started by New, named member-0, member-1, …
	Kinds    []Kind        // served by each member; BuiltinKinds when nil
	History  int           // events kept per kind for watches and exact LISTs; 10,000 when zero
	Bookmark time.Duration // between bookmarks of a watch; one minute when zero
	Streams  int           // at a time on a connection; kube-apiserver's 100 when zero
	Version  string        // as /version says; v1.36.3 when empty
	Log      *slog.Logger  // what the servers complain of; nothing when nil
}

func (o *Options) validate() error {
	if o.Members < 0 || o.History < 0 || o.Bookmark < 0 || o.Streams < 0 {
		return errors.New("sim: negative option")
	}
	for _, k := range o.Kinds {
		if err := k.validate(); err != nil {
			return err
		}
	}
	o.History = cmp.Or(o.History, 10_000)
	o.Bookmark = cmp.Or(o.Bookmark, time.Minute)
	o.Streams = cmp.Or(o.Streams, 100)
	o.Version = cmp.Or(o.Version, "v1.36.3")
	if o.Kinds == nil {
		o.Kinds = BuiltinKinds()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (k Kind) validate() error {
	if k.Kind == "" || k.Resource == "" || len(k.Versions) == 0 || slices.Contains(k.Versions, "") {
		return fmt.Errorf("sim: kind %+v needs a kind, a resource and versions", k)
	}
	return nil
}

// A Fleet owns its members: [Fleet.Close] stops them and waits for their goroutines.
type Fleet struct {
	opts Options

	mu      sync.Mutex
	members []*Member // in order of their addition
	closed  bool
}

// New starts a fleet. The caller closes it.
func New(opts Options) (*Fleet, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	f := &Fleet{opts: opts}
	for i := range opts.Members {
		if _, err := f.Add(fmt.Sprintf("member-%d", i)); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// Add starts one more member.
func (f *Fleet) Add(name string) (*Member, error) {
	m, err := newMember(name, &f.opts)
	if err != nil {
		return nil, fmt.Errorf("sim: member %q: %w", name, err)
	}
	f.mu.Lock()
	closed := f.closed
	taken := slices.ContainsFunc(f.members, func(o *Member) bool { return o.name == name })
	if !closed && !taken {
		f.members = append(f.members, m)
	}
	f.mu.Unlock()
	switch {
	case closed:
		m.close()
		return nil, errors.New("sim: the fleet is closed")
	case taken:
		m.close()
		return nil, fmt.Errorf("sim: member %q exists", name)
	}
	return m, nil
}

// Remove stops a member for good and waits for its goroutines.
func (f *Fleet) Remove(m *Member) {
	f.mu.Lock()
	f.members = slices.DeleteFunc(f.members, func(o *Member) bool { return o == m })
	f.mu.Unlock()
	m.close()
}

// Members lists the members in order of their addition.
func (f *Fleet) Members() []*Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.members)
}

// Watches is the number of watches that are open.
func (f *Fleet) Watches() int {
	n := 0
	for _, m := range f.Members() {
		n += int(m.watches.Load())
	}
	return n
}

// Close stops all members and waits for their goroutines.
func (f *Fleet) Close() {
	f.mu.Lock()
	members := f.members
	f.members, f.closed = nil, true
	f.mu.Unlock()
	for _, m := range members {
		m.cutOff() // all at once, before waiting for any
	}
	for _, m := range members {
		m.close()
	}
}
