package verdictmemory

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"federator.dev/federator/pkg/policy"
)

const (
	retryAfter  = 30 * time.Second // a failed write
	endPatience = 5 * time.Second  // with a disk that does not answer, at the end
	slack       = 1 << 20          // bytes of outdated records for which a file is not rewritten
)

// Run writes what is recorded until ctx is done, and then what is left.
func (m *Memory) Run(ctx context.Context) {
	ended := make(chan struct{})
	go func() { // it is left behind by the end if the disk does not answer
		defer close(ended)
		m.write(ctx)
	}()
	<-ctx.Done()
	patience := time.NewTimer(endPatience)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
		m.log.Error("since when violations are there is not kept", "directory", m.directory, "error", errNoAnswer)
	}
}

// write writes until ctx is done.
func (m *Memory) write(ctx context.Context) {
	w := &writer{memory: m}
	defer func() {
		if w.file != nil {
			w.file.Close()
		}
	}()
	retry := time.NewTimer(0)
	defer retry.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
		case <-m.changed:
			if failed {
				continue // until it is tried again
			}
		case <-retry.C:
		}
		err := w.write()
		switch {
		case err != nil && !failed:
			m.log.Error("since when violations are there is not kept", "directory", m.directory, "error", err)
		case err == nil && failed:
			m.log.Info("since when violations are there is kept again", "directory", m.directory)
		}
		if failed = err != nil; failed {
			retry.Reset(retryAfter)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// writer writes the files. It belongs to one goroutine.
type writer struct {
	memory  *Memory
	file    *os.File // nil: it is to be rewritten
	size    int64
	rewrote int64 // its size when it was rewritten
}

// work is what is to be written.
type work struct {
	state       *policy.State
	recalled    seen // nil unless all is to be written again
	pending     []byte
	renew       bool
	quarantines []policy.KeptQuarantine
	renewNow    bool
}

func (m *Memory) take(more func(pending int) bool) work {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := work{state: m.state, pending: m.pending, renew: m.renew || more(len(m.pending)), renewNow: m.renewNow}
	if w.state == nil {
		return work{}
	}
	if w.renew {
		w.recalled = seen{}
		for binding, of := range m.recalled {
			w.recalled[binding] = maps.Clone(of)
		}
		for _, of := range m.doubts {
			for x, list := range of {
				for _, seen := range list {
					w.recalled.set(digest(x.binding), seen)
				}
			}
		}
	}
	if w.renewNow {
		// Those of what is not bound yet may be of what never will be.
		m.kept = slices.DeleteFunc(m.kept, func(q policy.KeptQuarantine) bool { return m.clock().Sub(q.Until) > q.Last })
		w.quarantines = slices.Concat(m.kept, m.now)
	}
	m.pending, m.renew, m.renewNow = nil, false, false
	return w
}

func (w *writer) write() error {
	x := w.memory.take(func(pending int) bool {
		return pending > 0 && (w.file == nil || w.size+int64(pending) > 2*w.rewrote+slack)
	})
	var err error
	if x.renew {
		err = w.rewrite(x.state, x.recalled)
	} else if len(x.pending) > 0 {
		err = w.append(x.pending)
	}
	var failed error
	if x.renewNow {
		failed = w.writeQuarantines(x.quarantines)
	}
	if err != nil || failed != nil {
		m := w.memory
		m.mu.Lock()
		m.renew, m.renewNow = m.renew || err != nil, m.renewNow || failed != nil
		m.mu.Unlock()
	}
	return errors.Join(err, failed)
}

func (w *writer) append(records []byte) error {
	n, err := w.file.WriteAt(records, w.size)
	w.size += int64(n)
	return err
}

// rewrite writes what a state has, and before it what is still recalled. What is recorded later is appended:
// it is of later states, or says the same.
func (w *writer) rewrite(state *policy.State, recalled seen) error {
	f, size, err := replace(seenFile(w.memory.directory), func(to io.Writer) error {
		if _, err := io.WriteString(to, w.memory.secrets.magic()); err != nil {
			return err
		}
		var buf [recordBytes]byte
		put := func(binding uint64, x policy.Seen) error {
			_, err := to.Write(w.memory.secrets.appendRecord(buf[:0], binding, x))
			return err
		}
		for binding, of := range recalled {
			for _, list := range of {
				for _, x := range list {
					if err := put(binding, x); err != nil {
						return err
					}
				}
			}
		}
		for b := range state.Bindings() {
			of := digest(b.Name)
			for x := range state.Seen(b.Name) {
				if err := put(of, x); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if w.file != nil {
		w.file.Close()
	}
	w.file, w.size, w.rewrote = f, size, size
	return nil
}

func (w *writer) writeQuarantines(list []policy.KeptQuarantine) error {
	f, _, err := replace(quarantinesFile(w.memory.directory), func(to io.Writer) error {
		return w.memory.secrets.writeQuarantines(to, list)
	})
	if err != nil {
		return err
	}
	return f.Close()
}
