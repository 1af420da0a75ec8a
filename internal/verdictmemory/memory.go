package verdictmemory

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// recallFor is how long what an earlier process knew is recalled at most, of policies that do not come, or
// that read what is not read.
const recallFor = time.Hour

const (
	openPatience = 10 * time.Second // with a disk that does not answer
	maxPending   = 4 << 20          // bytes of records that are not written; beyond, all are written again
)

// Memory is what of verdicts outlasts a process. It is safe for concurrent use; Run owns what writes it.
type Memory struct {
	directory string
	secrets   secrets
	log       *slog.Logger
	clock     func() time.Time
	patience  time.Duration

	// settled returns a revision of the index that has all members, and what they have of what was lost; false
	// until there is one.
	settled func() (aggregate.Revision, bool)
	changed chan struct{} // of capacity 1

	mu       sync.Mutex
	opened   time.Time
	complete aggregate.Revision      // as settled; 0: not yet
	recalled seen                    // what an earlier process knew of subjects that this one has not evaluated
	told     map[string]told         // by member: what others know of what this process has not evaluated, or may come to judge
	toldKeys map[string]told         // the same of keys of views, by who judged them
	doubts   doubts                  // what was there, and may be there still
	taken    []taken                 // of all these, what the call of the engine that is under way has asked for
	kept     []policy.KeptQuarantine // the same of quarantines
	state    *policy.State           // the newest; nil: none
	pending  []byte                  // records that are not written
	renew    bool                    // all are to be written again
	now      []policy.KeptQuarantine
	renewNow bool // quarantines are to be written
}

// New returns the memory of a directory, which recalls nothing until Open. What is on disk is encrypted by
// a key of 32 bytes, nil for none. Without a directory nothing is kept over a restart, and neither Open nor Run is called.
func New(directory string, key []byte, log *slog.Logger) (*Memory, error) {
	s, err := newSecrets(key)
	if err != nil {
		return nil, err
	}
	return &Memory{
		directory: directory, secrets: s, log: log, clock: time.Now, patience: openPatience, changed: make(chan struct{}, 1),
	}, nil
}

var errNoAnswer = errors.New("the disk does not answer")

// Open reads what an earlier process has kept. What cannot be read is not recalled: the log says so.
//
// settled returns a revision of the index at which it has all members, and all that was lost of them over the
// restart; false until there is one. What is recalled is not forgotten before: a policy that reads nothing
// because no member is known yet has not been evaluated.
func (m *Memory) Open(settled func() (aggregate.Revision, bool)) {
	type contents struct {
		seen        seen
		quarantines []policy.KeptQuarantine
		err         error
	}
	done := make(chan contents, 1) // of an attempt that may be abandoned
	go func() {
		var c contents
		c.seen, c.quarantines, c.err = m.secrets.read(m.directory)
		done <- c
	}()
	patience := time.NewTimer(m.patience)
	defer patience.Stop()
	var c contents
	select {
	case c = <-done:
	case <-patience.C:
		c.err = errNoAnswer
	}
	if c.err != nil {
		m.log.Error("not all violations are known since when they are there", "directory", m.directory, "error", c.err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recalled, m.kept, m.opened, m.settled = c.seen, c.quarantines, m.clock(), settled
}

// of is what a binding judges.
type of struct {
	binding string
	subject policy.Subject
}

// taken is what was recalled of a subject.
type taken struct {
	of

	seen []policy.Seen
	told bool // by another process: the disk does not have it
	gone bool // it was gone before the engine asked
}

// Recall implements policy.Memory.
func (m *Memory) Recall(binding string, s policy.Subject) []policy.Seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.recalled) == 0 && len(m.told) == 0 && len(m.toldKeys) == 0 && len(m.doubts) == 0 {
		return nil
	}
	x := taken{of: of{binding, s}}
	if list := m.doubts.of(x.of); list != nil {
		x.seen, x.gone = list, m.state != nil && !inDoubt(m.state, x.of)
	} else if x.seen = m.heard(binding, s); len(x.seen) > 0 {
		x.told = true
	} else if _, is := m.told[s.Ref.Member]; !is {
		x.seen = m.recalled[digest(binding)][s.Digest()]
	}
	if len(x.seen) > 0 {
		m.taken = append(m.taken, x)
	}
	if x.gone {
		return nil
	}
	return x.seen
}

// Quarantines implements policy.Memory.
func (m *Memory) Quarantines(of, digest string) (list []policy.KeptQuarantine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = slices.DeleteFunc(m.kept, func(q policy.KeptQuarantine) bool {
		if q.Of != of || q.Digest != digest {
			return false
		}
		list = append(list, q)
		return true
	})
	return list
}

// Record implements enforce.Memory.
func (m *Memory) Record(changes *policy.Changes, quarantines []policy.KeptQuarantine) {
	if changes.After == nil { // nothing was evaluated yet
		return
	}
	r := recording{memory: m, after: changes.After, left: map[of][]policy.Seen{}}
	for _, x := range m.takeTaken() {
		r.recalled(x)
	}
	for x := range changes.Seen() {
		if x.Gone || !changes.Rebuilt() {
			r.changed(x)
		}
	}
	settled := r.settle(m.someDoubts())
	complete := m.settles()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = changes.After
	m.complete = max(m.complete, complete)
	m.setDoubts(settled, r.left)
	m.forget()
	if m.directory == "" {
		return
	}
	if m.pending = append(m.pending, r.records...); changes.Rebuilt() || len(m.pending) > maxPending {
		m.pending, m.renew = nil, true
	}
	if !slices.Equal(m.now, quarantines) {
		m.now, m.renewNow = quarantines, true
	}
	if len(m.pending) > 0 || m.renew || m.renewNow {
		m.wake()
	}
}

// takeTaken forgets what the engine has asked for, which the state has now, and returns it.
func (m *Memory) takeTaken() []taken {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.taken
	m.taken = nil
	for _, t := range list {
		binding, subject := digest(t.binding), t.subject.Digest()
		m.recalled.delete(binding, subject)
		m.takeTold(binding, t.subject)
		m.doubts.delete(t.of)
	}
	return list
}

// settles returns the revision at which the index is complete, where that matters and was not known; 0 otherwise.
func (m *Memory) settles() aggregate.Revision {
	m.mu.Lock()
	known := m.complete != 0 || len(m.recalled) == 0
	m.mu.Unlock()
	if known {
		return 0
	}
	if at, ok := m.settled(); ok {
		return at
	}
	return 0
}

func (m *Memory) wake() {
	select {
	case m.changed <- struct{}{}:
	default: // it is awake
	}
}

// forget forgets what other processes knew for too long, and what an earlier process knew of policies that were evaluated on all
// that they read: the subjects that are left are gone.
func (m *Memory) forget() {
	m.forgetTold()
	if len(m.recalled) == 0 {
		return
	}
	before := len(m.recalled)
	if m.clock().Sub(m.opened) > recallFor {
		m.recalled = nil
	}
	for b := range m.state.Bindings() {
		if m.complete == 0 || m.state.Snapshot.Revision() < m.complete {
			break
		}
		of := digest(b.Name)
		if _, is := m.recalled[of]; is && m.state.BindingSynced(b.Name) {
			delete(m.recalled, of)
		}
	}
	if len(m.recalled) < before { // what is on disk of them and was not found is outdated
		m.pending, m.renew = nil, true
	}
}
