package resources

import (
	"crypto/sha256"
	"encoding/binary"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// GrantMemory remembers over restarts under which grants callers were sent objects: of each key, which
// is a digest, a digest of the grants and the revision from which on these have been the same.
type GrantMemory interface {
	// Recall returns what is remembered of a key. Where it is not known, the key was sent nothing
	// from a revision on; 0: nobody knows since when.
	Recall(key [sha256.Size]byte) (grants [sha256.Size]byte, from aggregate.Revision, known bool)
	// Remember returns once the next process would not recall what was before. It is called before
	// anything is sent under the grants.
	Remember(key, grants [sha256.Size]byte, from aggregate.Revision)
}

// digest is of all that makes up a key.
func (k historyKey) digest() [sha256.Size]byte {
	var b []byte
	for _, s := range []string{k.name, k.uid, k.verb, string(k.kind), k.member, k.namespace} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return sha256.Sum256(b)
}

// begin adds to a history what is remembered of its key: where grants have changed over a restart, what
// was sent by the process before is of others. t.mu must be held.
func (h *grantHistories) begin(t *grantHistory) {
	if t.begun {
		return
	}
	t.begun = true
	evicted := t.since // up to where something may have been sent that is not known
	if h.memory == nil {
		t.since = max(evicted, h.first)
		return
	}
	key, digest := t.key.digest(), t.grants.Digest()
	grants, from, known := h.memory.Recall(key)
	same := known && grants == digest
	if known && !same || from == 0 {
		from = h.first
	}
	t.since = max(evicted, from)
	if !same && evicted > 0 {
		from = max(from, evicted+1)
	}
	h.memory.Remember(key, digest, from)
}

// recallList returns the history of the caller's lists by the process before, whose revision the client
// has: nil where these were under the grants of the watch, or there were none.
func (w *watchStream) recallList(key historyKey) (*grantHistory, error) {
	h := w.histories
	if h.memory == nil || w.sent >= h.first {
		return nil, nil
	}
	grants, from, known := h.memory.Recall(key.digest())
	switch {
	case known && grants != w.grants.Digest():
		now, err := w.caller.Grants(w.r.Context(), selection.List, w.resource.Kind, w.snapshot)
		if err != nil {
			return nil, err
		}
		listed, _ := h.record(key, now)
		return listed, nil
	case from == 0 || w.sent < from:
		return nil, Expired(w.sent)
	}
	return nil, nil
}
