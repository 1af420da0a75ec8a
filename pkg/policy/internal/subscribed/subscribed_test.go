package subscribed_test

import (
	"testing"

	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy/internal/subscribed"
)

const pods, nodes = interest.Space("kPod"), interest.Space("kNode")

// reads is one of the tables of reads.
type reads struct {
	*subscribed.Table
	tell func(key uint64, read bool)
}

func newReads() reads {
	t := subscribed.New(nil)
	return reads{t, t.Watch(0)}
}

func (r reads) add(key uint64, p subscribed.Place) {
	r.Add(key, p)
	r.tell(key, true)
}

// TestTable_WholeSpaceThatIsReadNoMoreIsNotWanted: one read may be of more than all others, so that it is not for their number that
// what is wanted is counted again.
func TestTable_WholeSpaceThatIsReadNoMoreIsNotWanted(t *testing.T) {
	r := newReads()
	r.add(1, subscribed.Place{Space: pods, Whole: true})
	r.add(2, subscribed.Place{Space: pods, Whole: true})
	r.add(3, subscribed.Place{Space: pods, Bucket: 7})
	r.add(4, subscribed.Place{Space: nodes, Whole: true})
	r.Sweep()
	if w := r.Wanted(); !w.HasAll(pods) || !w.HasAll(nodes) {
		t.Fatal("what is read is not wanted")
	}
	r.tell(1, false)
	r.Sweep()
	if w := r.Wanted(); !w.HasAll(pods) {
		t.Error("what another read is of is not wanted")
	}
	r.tell(2, false)
	r.Sweep()
	switch w := r.Wanted(); {
	case w.HasAll(pods):
		t.Error("all is wanted of what is read by one key")
	case !w.Has(pods, 7) || !w.HasAll(nodes):
		t.Error("what is read still is not wanted")
	}
	r.tell(4, false)
	r.tell(4, true) // within one pass
	r.Sweep()
	if !r.Wanted().HasAll(nodes) {
		t.Error("what is read again is not wanted")
	}
}

// TestTable_FewKeysThatAreReadNoMoreCostNothing: they stay wanted until they are many.
func TestTable_FewKeysThatAreReadNoMoreCostNothing(t *testing.T) {
	r := newReads()
	for key := range uint64(3000) {
		r.add(key, subscribed.Place{Space: pods, Bucket: uint32(key)})
	}
	r.Sweep()
	before := r.Wanted()
	for key := range uint64(3000) {
		r.tell(key, false)
		if r.Sweep(); key < 1500 && r.Wanted() != before {
			t.Fatalf("what is wanted was counted again after %d keys", key+1)
		}
	}
	if n := r.Wanted().Size(); n > 1001 {
		t.Errorf("%d keys are wanted of those that nothing reads", n)
	}
	if keys, waiting, bytes := r.Size(); keys+waiting+int(bytes) > 0 {
		t.Errorf("%d keys, %d of them waiting, take %d bytes", keys, waiting, bytes)
	}
}
