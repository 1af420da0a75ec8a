package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes/scheme"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// A server's resourceVersions only grow. Where one is below what the server has
// sent before, it has been taken back to an earlier state, as by an older copy of
// its etcd: what is held may never have been, and what a watch sends from there on
// leaves out what was lost. All scopes of the member then relist.

// A server that was taken back and has written since may have come further than it was read: its
// resourceVersions are of another history. What it had at that of an event that it sent before
// decides then; a resourceVersion is of one write only.

// rewoundError ends a watch whose server has gone back.
type rewoundError struct {
	was, is string
	object  string // of what the server has another history, "" where its resourceVersion says so
}

func (e *rewoundError) Error() string {
	if e.object != "" {
		return fmt.Sprintf("at resourceVersion %s the server sent another %s than it had then: it has %q", e.was, e.object, e.is)
	}
	return fmt.Sprintf("the server's resourceVersion went backwards from %s to %s", e.was, e.is)
}

// olderThan reports whether one resourceVersion is older than another. Those that are no
// numbers cannot be compared, and are not.
func olderThan(rv, other string) bool {
	c, err := resourceversion.CompareResourceVersion(rv, other)
	return err == nil && c < 0
}

// checkOrder checks what a watch sends against what it was opened from: a server sends
// only what is newer, though not every one in order. A bookmark says that all up to
// it has been sent.
func (p *listWatch) checkOrder(rv string, bookmark bool) error {
	if olderThan(rv, p.floor) {
		return &rewoundError{was: p.floor, is: rv}
	}
	if bookmark && olderThan(p.floor, rv) {
		p.floor = rv
	}
	return nil
}

// advanceLocked records how far the listWatch has come. A list that reaches less is proof
// that the server has gone back: lists are answered from what is newest, or from no
// older than what was requested. The informer's mu must be held.
func (p *listWatch) advanceLocked(rv string) {
	if p.reached == "" || olderThan(p.reached, rv) {
		p.reached = rv
	}
}

// checkList compares a list with how far the listWatch had come before.
func (p *listWatch) checkList(rv string) {
	i := p.informer
	i.mu.Lock()
	was := p.reached
	p.reached = rv
	i.mu.Unlock()
	if olderThan(rv, was) {
		i.member.rewound(i.resets, i.kind, &rewoundError{was: was, is: rv})
	}
}

// rewound restarts all scopes of the member, as restartScopes does.
func (mb *member) rewound(seen int, kind aggregate.Kind, err *rewoundError) {
	if mb.restartScopes(seen) {
		msg := "the server's resourceVersion went backwards (was etcd restored?), relisting all scopes of the member"
		if err.object != "" {
			msg = "the server's history is another one (was etcd restored?), relisting all scopes of the member"
		}
		mb.log.Warn(msg, "kind", kind, "object", err.object, "previous", err.was, "current", err.is)
		mb.conn.recordKindError(kind, err)
	}
}

// A server that goes back again and again is listed less and less.
const (
	minRestartDelay   = time.Second
	maxRestartDelay   = 10 * time.Minute
	restartDelayReset = time.Hour // after which the first time is again the first
)

// restartScopes relists all scopes of the member, unless they were already restarted
// since the informer that reports it was started (seen is the number of resets then).
// Informers are stopped at once: what they would still apply is outdated.
func (mb *member) restartScopes(seen int) bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	if mb.resets != seen {
		return false
	}
	now := time.Now()
	switch {
	case mb.resetAt.IsZero() || now.Sub(mb.resetAt) > restartDelayReset:
		mb.resetDelay = 0
	default:
		mb.resetDelay = min(maxRestartDelay, max(minRestartDelay, 2*mb.resetDelay))
	}
	mb.resetAt = now
	mb.resets++
	for _, r := range mb.informers {
		r.end()
	}
	mb.triggerDiscovery()
	return true
}

// verifyCluster gets the cluster's UID and checks that its resourceVersion has not gone
// backwards: a watch from a resourceVersion that the server has not reached stays
// silent. So it requests a response that is no older than the Namespaces that are held.
func (mb *member) verifyCluster(ctx context.Context, client *memberclient.Client) (string, error) {
	mb.mu.Lock()
	r := mb.informers["Namespace"]
	mb.mu.Unlock()
	was := mb.loaded.Load().reachedNamespaces()
	if r != nil {
		was = r.reached()
	}
	uid, err := client.ClusterUID(ctx, was)
	if was == "" || err == nil || classify(err) != expired && classify(err) != unsupported {
		return uid, err
	}
	// A replica may only lag; a list of what is newest decides. What the server refuses
	// as none of its own is above all that it has, or was another process's of a federator.
	newest, err := client.NewestResourceVersion(ctx, namespaces)
	if err != nil {
		return "", err
	}
	if olderThan(newest, was) {
		seen := 0 // what was loaded is of before the first
		if r != nil {
			seen = r.resets
		}
		mb.rewound(seen, "Namespace", &rewoundError{was: was, is: newest})
	}
	return client.ClusterUID(ctx, "")
}

var namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")

// verifyOrder checks that no kind was read further than the server has come. Namespaces, which
// verifyCluster asks for before anything else, are quiet: an earlier state of the server may have all
// that is known of them. Kinds that are kept elsewhere have resourceVersions of their own, as those of
// an aggregated API: only the server's answer on a kind itself says that it was taken back.
func (mb *member) verifyOrder(ctx context.Context, client *memberclient.Client) error {
	was, most := mb.reachedKinds(), ""
	for _, k := range was {
		if most == "" || olderThan(most, k.reached) {
			most = k.reached
		}
	}
	if most == "" {
		return nil
	}
	// A server that has come that far says so without a list; one that has may not know it yet.
	switch _, err := client.ClusterUID(ctx, most); {
	case err == nil:
		return mb.verifyHistory(ctx, client)
	case classify(err) != expired && classify(err) != unsupported:
		return unlessRefused(err)
	}
	newest, err := client.NewestResourceVersion(ctx, namespaces)
	if err != nil {
		return unlessRefused(err)
	}
	for kind, k := range was {
		if !olderThan(newest, k.reached) {
			continue
		}
		own, err := client.NewestResourceVersion(ctx, k.resource)
		switch {
		case unlessRefusedOf(k.resource, err) != nil:
			return err
		case err == nil && olderThan(own, k.reached):
			mb.rewound(k.resets, kind, &rewoundError{was: k.reached, is: own})
			return nil
		}
	}
	return mb.verifyHistory(ctx, client) // what has come further is of another store
}

// A witness is what a server has said that it wrote at a resourceVersion.
type witness struct {
	namespace, name string
	at              string // its own resourceVersion
	gone            bool   // it was deleted then
}

// witness is what an object says of its server: nothing where it has no resourceVersion of its own, or is left
// out, as the server may then not be asked for it by its key.
func (o *object) witness() witness {
	if o.unfit.why != "" {
		return witness{}
	}
	return witness{namespace: o.namespace, name: o.name, at: o.item.ResourceVersion()}
}

// noteLocked takes note of an event. The informer's mu must be held.
func (p *listWatch) noteLocked(w witness) {
	if w.at != "" && !olderThan(w.at, p.newest.at) {
		p.newest = w
	}
}

// noteListedLocked takes note of the newest object of a list. The informer's mu must be held.
func (p *listWatch) noteListedLocked(objs []*object) {
	var newest *object
	for _, o := range objs {
		if o.unfit.why == "" && o.rv != "" && (newest == nil || olderThan(newest.rv, o.rv)) {
			newest = o
		}
	}
	if newest != nil {
		p.noteLocked(newest.witness())
	}
}

// keepWitness keeps what earlier watches have sent apart from what the one sends that was opened: that
// may be of another history, and comes while the member's is verified.
func (p *listWatch) keepWitness() {
	p.informer.mu.Lock()
	defer p.informer.mu.Unlock()
	p.keepWitnessLocked()
	p.before[0] = p.newest
}

// keepWitnessLocked keeps what was known before it became doubtful what answers, until that is verified: watches may
// be opened again, and lists answered, any number of times meanwhile. The informer's mu must be held.
func (p *listWatch) keepWitnessLocked() {
	if doubt := p.informer.member.conn.doubts.Load(); doubt != p.doubt {
		p.doubt, p.before[1] = doubt, p.newest
	}
}

// verifyHistory checks that the server has written what it is said to have sent. A server that has forgotten the
// resourceVersion, or lists at none, proves nothing; the audit compares all of it later.
func (mb *member) verifyHistory(ctx context.Context, client *memberclient.Client) error {
	for _, w := range mb.witnesses() {
		version, answered, err := client.VersionAt(ctx, w.resource, w.namespace, w.name, w.at)
		switch {
		case unlessRefusedOf(w.resource, err) != nil:
			return err
		case err != nil || answered != w.at:
			continue
		}
		if w.gone != (version == "") || !w.gone && version != w.at {
			mb.rewound(w.resets, w.kind, &rewoundError{was: w.at, is: version, object: strings.TrimPrefix(w.namespace+"/"+w.name, "/")})
			return nil
		}
	}
	return nil
}

// kindWitness is a witness with what it is of.
type kindWitness struct {
	witness
	kind     aggregate.Kind
	resource schema.GroupVersionResource
	resets   int
}

// witnesses returns the newest of what was sent on all watches, and the same of what was sent before those were
// opened that may be of another history. Of built-in kinds there are some beside those of all kinds: an aggregated
// API, and often Events, are kept elsewhere, where resourceVersions may be far higher.
func (mb *member) witnesses() (all []kindWitness) {
	mb.mu.Lock()
	informers := maps.Clone(mb.informers)
	mb.mu.Unlock()
	var newest [2][3]kindWitness // of all kinds, of built-in ones
	doubt := mb.conn.doubts.Load()
	for _, i := range informers {
		gvr := i.resource.Value().GVR
		ranks := newest[:1]
		if scheme.Scheme.IsGroupRegistered(gvr.Group) && gvr.Resource != "events" {
			ranks = newest[:]
		}
		i.mu.Lock()
		for _, p := range i.listWatches {
			known := p.before[1]
			if p.doubt != doubt { // nothing was answered since
				known = p.newest
			}
			for n, w := range [...]witness{p.newest, p.before[0], known} {
				for r := range ranks {
					if to := &ranks[r][n]; w.at != "" && (to.at == "" || olderThan(to.at, w.at)) {
						*to = kindWitness{w, i.kind, gvr, i.resets}
					}
				}
			}
		}
		i.mu.Unlock()
	}
	for _, w := range slices.Concat(newest[0][:], newest[1][:]) {
		if w.at != "" && !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	return all
}

// unlessRefused returns an error that may not come again.
func unlessRefused(err error) error {
	if err == nil || classify(err) != connectionFailed && classify(err) != serverBusy {
		return nil
	}
	return err
}

// unlessRefusedOf is unlessRefused of a request for a kind. An API that another server is asked for may be
// unavailable for good, and says nothing of the member then; nor does an answer that makes no sense.
func unlessRefusedOf(kind schema.GroupVersionResource, err error) error {
	var malformed *memberclient.MalformedError
	if errors.As(err, &malformed) || err != nil && classify(err) == serverBusy && !scheme.Scheme.IsGroupRegistered(kind.Group) {
		return nil
	}
	return unlessRefused(err)
}

// reachedKind is how far a kind was read.
type reachedKind struct {
	resource schema.GroupVersionResource
	reached  string
	resets   int // of the member, when its informer was started
}

// reachedKinds returns how far the kinds were read, by this process or by the one before.
func (mb *member) reachedKinds() map[aggregate.Kind]reachedKind {
	mb.mu.Lock()
	informers, out := maps.Clone(mb.informers), map[aggregate.Kind]reachedKind{}
	if l := mb.loaded.Load(); l != nil && mb.resets == 0 && l.furthest.reached != "" {
		out[l.furthestKind] = l.furthest
	}
	mb.mu.Unlock()
	for kind, i := range informers {
		if rv := i.furthest(); rv != "" {
			out[kind] = reachedKind{resource: i.resource.Value().GVR, reached: rv, resets: i.resets}
		}
	}
	return out
}

// furthest is how far the listWatch has come that has come furthest.
func (i *informer) furthest() (rv string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range i.listWatches {
		if rv == "" || olderThan(rv, p.reached) {
			rv = p.reached
		}
	}
	return rv
}

// reached is how far the informer has come, "" where that is not one
// resourceVersion.
func (i *informer) reached() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.listWatches) != 1 {
		return ""
	}
	return i.listWatches[0].reached
}
