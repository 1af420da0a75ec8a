package persistence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"federator.dev/federator/pkg/aggregate"
)

// trialLoads are how often a member is loaded to see whether all of it can be, while a process
// writes to it, removes files, and adds dictionaries.
const trialLoads = 3

// trial loads members one at a time, and keeps nothing of them.
type trial struct {
	store     *Store
	ends      map[string]end // nil: not known
	inUse     bool
	pointless bool // nothing would be loaded of any
	loader    *aggregate.Loader
}

func (s *Store) newTrial(out *Inspection) (*trial, error) {
	t := &trial{store: s, inUse: out.InUse, pointless: out.Problem != ""}
	return t, t.begin()
}

// begin makes a loader that knows the dictionaries that are there.
func (t *trial) begin() error {
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(aggregate.MaxBlock)}) // above all that is there
	if err != nil {
		return err
	}
	t.loader = x.Load()
	_, t.ends, _ = t.store.readEnds() // where it is not known, files are read as far as they are sound
	dir := filepath.Join(t.store.opts.Directory, dictionariesDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".tmp") {
			// One that is not sound is not there, of which its objects tell.
			_, _ = t.store.loadDictionary(t.loader, filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// dropped returns why not all of a member would be loaded, "" where it would.
func (t *trial) dropped(ctx context.Context, m *InspectedMember) (why string, err error) {
	for n := 1; ; n++ {
		if why, err = t.load(ctx, m.Name, m.Logs); err != nil || why == "" || !t.inUse || n == trialLoads {
			return why, err
		}
		if err := t.begin(); err != nil {
			return "", err
		}
	}
}

func (t *trial) load(ctx context.Context, name string, logs int) (why string, err error) {
	r := &memberReader{
		loader: t.loader, key: t.store.opts.Key, name: name, dir: memberDir(t.store.opts.Directory, name),
		forms: map[aggregate.Kind]string{}, progress: &atomic.Int64{},
	}
	if t.ends != nil {
		e, seen := t.ends[name]
		if !seen {
			return "", nil // it is being written, or has left
		}
		r.end = &e
	}
	r.form = func(kind aggregate.Kind) string { return r.forms[kind] } // of the process that loads, nothing is known
	defer t.loader.Remove(name)
	if err := r.load(ctx); err != nil {
		return "", err
	}
	switch {
	case r.out.doubt != nil && r.out.nothing:
		return fmt.Sprintf("nothing would be loaded: %v", r.out.doubt), nil
	case r.out.doubt != nil:
		return fmt.Sprintf("not all would be loaded: %v", r.out.doubt), nil
	case r.out.nothing && logs > 0:
		return "nothing would be loaded: no segment is there that the logs continue", nil
	}
	return "", nil
}
