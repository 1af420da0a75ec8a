package engine

import (
	"encoding/binary"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
)

// memo keeps the outcomes of the evaluations of one pass by what they read: the Pods of
// a ReplicaSet are equal in all that most policies read, so that one evaluation serves
// them. A verdict is a function of what is read, and of nothing else.
type memo struct {
	passID   int64
	outcomes map[string]memoized
	bytes    int
	key      []byte
	pruned   []byte // the parts of the object that any binding reads
}

// memoized is an outcome, and what was read of time for it.
type memoized struct {
	outcome *state.Outcome
	times   *times // nil for nothing
}

// times are the instants that were read and have not passed. Each subject that shares the outcome records them.
type times struct {
	keys    []uint64
	inDoubt bool
}

const (
	maxMemoBytes = 8 << 20  // bytes of keys that one worker keeps
	maxMemoKey   = 32 << 10 // bytes of one key
	minMemoTasks = 4        // fewer hardly repeat each other
)

// memoizable reports whether verdicts of a binding depend only on the kind of the
// subject and on the parts of the object that its mask reads.
func memoizable(b *boundBinding) bool {
	reads := &b.pkg.Reads
	return b.pkg.Subject == module.ObjectSubject && !reads.OfFleet() && reads.Member == nil && onlyKind(reads.Ref) &&
		len(b.pkg.Remedies) == 0 && len(b.Exemptions) == 0 && len(b.pins) == 0 &&
		!b.sel.ByNamespaceLabels() && (b.pkg.Admission == nil || !b.pkg.IsOpen()) // members may serve a kind as other resources
}

// onlyKind reports whether a mask of input.ref reads no more than the kind.
func onlyKind(m *mask.Mask) bool {
	if m == nil {
		return true
	}
	for field := range m.Fields {
		if field != "kind" {
			return false
		}
	}
	return !m.All && m.Elem == nil
}

// release forgets the outcomes of a large pass, of which an idle engine needs none.
func (t *memo) release() {
	if len(t.outcomes) > 256 {
		*t = memo{}
	}
}

// start prepares the memo for an object, pruned to what all evaluations of it read.
func (t *memo) start(passID int64, body []byte, m *mask.Mask) bool {
	if t.passID != passID || t.bytes > maxMemoBytes {
		if t.passID, t.bytes = passID, 0; t.outcomes == nil || len(t.outcomes) > 256 {
			t.outcomes = map[string]memoized{} // clearing a large map would slow down every pass
		}
		clear(t.outcomes)
	}
	var err error
	t.pruned, err = document.Prune(t.pruned[:0], body, m)
	return err == nil
}

// get returns the outcome of an object of equal content.
func (t *memo) get(b *boundBinding, kind aggregate.Kind) (f memoized, ok bool) {
	t.key = binary.LittleEndian.AppendUint32(t.key[:0], b.id)
	t.key = append(append(t.key, kind...), 0)
	var err error
	if t.key, err = document.Prune(t.key, t.pruned, b.mask); err != nil {
		t.key = t.key[:0] // nothing is stored
		return memoized{}, false
	}
	f, ok = t.outcomes[string(t.key)]
	return f, ok
}

// put stores the result for the object of the last get. Errors are not stored: they
// may be transient.
func (t *memo) put(r *result) {
	n := len(t.key)
	if n == 0 || n > maxMemoKey || r.outcome != nil && r.outcome.Failure != nil {
		return
	}
	f := memoized{outcome: r.outcome}
	if len(r.keys) > 0 {
		f.times = &times{r.keys, r.readSet.InDoubt}
		t.bytes += 64 + 8*len(r.keys)
	}
	t.outcomes[string(t.key)] = f
	t.bytes += n + 64
}
