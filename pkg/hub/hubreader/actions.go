package hubreader

import (
	"iter"
	"sync"

	"github.com/tidwall/btree"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policyquery"
)

// actions are summaries of the newest Actions: of all that are newer than the newest one that is left out.
type actions struct {
	most    int
	listing *newest // by the follower's goroutine only

	mu    sync.Mutex
	held  *newest // nil: it is not known yet
	state policyquery.HubState
}

// newest are the newest Actions of those that were put.
type newest struct {
	tree *btree.BTreeG[*policyquery.ActionSummary]
	left *policyquery.ActionPosition // the newest that is left out; nil: none is
	out  int                         // how many are left out, about
}

func newNewest() *newest {
	return &newest{tree: btree.NewBTreeGOptions(func(x, y *policyquery.ActionSummary) bool {
		return x.Position().Compare(y.Position()) < 0
	}, btree.Options{NoLocks: true})}
}

// put puts an Action. One that is older than one which is left out is left out, too, and not summarized: between
// them there may be others.
func (n *newest) put(x *v1alpha1.Action, most int) (taken bool) {
	if n.isOut(x) {
		return false
	}
	n.tree.Set(policyquery.SummaryOf(x))
	if n.tree.Len() > most {
		oldest, _ := n.tree.PopMax()
		at := oldest.Position()
		n.left = &at
		n.out++
	}
	return true
}

func (n *newest) isOut(x *v1alpha1.Action) bool {
	at := policyquery.ActionPosition{Created: x.CreationTimestamp.UTC(), Name: x.Name}
	return n.left != nil && at.Compare(*n.left) >= 0
}

func newActions(most int) *actions { return &actions{most: most} }

func (a *actions) Begin() { a.listing = newNewest() }

func (a *actions) Put(x *v1alpha1.Action) {
	if !a.listing.put(x, a.most) {
		a.listing.out++
	}
}

func (a *actions) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held, a.state.Stale, a.listing = a.listing, false, nil
}

func (a *actions) Set(x *v1alpha1.Action) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held.put(x, a.most)
}

func (a *actions) Remove(x *v1alpha1.Action) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held.isOut(x) {
		a.held.out--
		return
	}
	a.held.tree.Delete(policyquery.SummaryOf(x))
}

// Lacking reports whether a tenth of the room is free while some are left out, or, as far as is known, none is left out
// any more. So a list, which reads all of them, is worth it.
func (a *actions) Lacking() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held.left != nil && (a.held.out <= 0 || a.held.tree.Len() < a.most-a.most/10)
}

func (a *actions) SetStale(stale bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Stale = stale
}

func (a *actions) SetUnreadable(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Unreadable = n
}

// all yields the Actions as they are now.
func (a *actions) all() (iter.Seq[*policyquery.ActionSummary], policyquery.HubState, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held == nil {
		return nil, policyquery.HubState{}, policyquery.ErrHubNotRead
	}
	now, state := a.held.tree.Copy(), a.state
	state.Older = a.held.left != nil
	return func(yield func(*policyquery.ActionSummary) bool) { now.Scan(yield) }, state, nil
}
