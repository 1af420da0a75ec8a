package engine

import (
	"encoding/binary"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
)

// twins keeps what evaluations of one round found, by what they read: the Pods of a
// ReplicaSet are alike in all that most policies look at, so that one evaluation
// serves them. A verdict is a function of what is read, and of nothing else.
type twins struct {
	round int64
	found map[string]*state.Outcome
	bytes int
	key   []byte
	read  []byte // the parts of the object that any binding reads
}

const (
	maxTwins  = 8 << 20  // bytes of keys that one worker keeps
	maxTwin   = 32 << 10 // bytes of one key
	manyTasks = 4        // fewer have hardly any twins
)

// alike reports whether verdicts of a binding follow from the kind of the subject and
// the parts of the object that its mask reads.
func alike(b *bound) bool {
	reads := &b.pkg.Reads
	return b.pkg.Subject == module.ObjectSubject && !reads.OfFleet() && reads.Member == nil && onlyKind(reads.Ref) &&
		len(b.pkg.Remedies) == 0 && len(b.Exemptions) == 0 && len(b.pins) == 0
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

// begin takes the object that evaluations are to share, under what all of them read.
func (t *twins) begin(round int64, body []byte, m *mask.Mask) bool {
	if t.round != round || t.bytes > maxTwins {
		if t.round, t.bytes = round, 0; t.found == nil || len(t.found) > 256 {
			t.found = map[string]*state.Outcome{} // clearing a large one takes its time in every round
		}
		clear(t.found)
	}
	var err error
	t.read, err = document.Prune(t.read[:0], body, m)
	return err == nil
}

// look returns what was found for a twin of the object.
func (t *twins) look(b *bound, kind aggregate.Kind) (f *state.Outcome, ok bool) {
	t.key = binary.LittleEndian.AppendUint32(t.key[:0], b.id)
	t.key = append(append(t.key, kind...), 0)
	var err error
	if t.key, err = document.Prune(t.key, t.read, b.mask); err != nil {
		t.key = t.key[:0] // nothing is kept
		return nil, false
	}
	f, ok = t.found[string(t.key)]
	return f, ok
}

// keep takes note of what was found for the object that was just looked for. Errors
// are not kept: they may be of the moment.
func (t *twins) keep(f *state.Outcome) {
	if n := len(t.key); n > 0 && n <= maxTwin && (f == nil || f.Err == "") {
		t.found[string(t.key)] = f
		t.bytes += n + 64
	}
}
