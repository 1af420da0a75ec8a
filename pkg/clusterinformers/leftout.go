package clusterinformers

import (
	"fmt"
	"hash/maphash"
	"strconv"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// leftOut are the objects of a listWatch that are not indexed because no API server
// would admit them, so that clients may fail on them. They make the scope Partial, so
// that no client takes them for absent. The informer's mu guards it.
type leftOut struct {
	byKey     map[leftKey]unfitReason
	uncounted int // more of them, which are not known one by one until the next list
}

// unfitReason is why an object is left out, and which one it is.
type unfitReason struct {
	why    string // contains nothing that the member wrote: it is shown to API clients
	object string // for operators
}

// leftKey is a hash of a namespace and name, whose length is the member's choice.
type leftKey uint64

// maxLeftOut bounds the objects of a listWatch that are known one by one.
const maxLeftOut = 64

var leftSeed = maphash.MakeSeed()

func leftKeyFor(namespace, name string) leftKey {
	return leftKey(maphash.Comparable(leftSeed, [2]string{namespace, name}))
}

func (l *leftOut) add(key leftKey, why unfitReason) {
	switch _, known := l.byKey[key]; {
	case known:
	case len(l.byKey) == maxLeftOut:
		l.uncounted++
		return
	case l.byKey == nil:
		l.byKey = map[leftKey]unfitReason{}
	}
	l.byKey[key] = why
}

// remove takes an object out that has gone or is fit again, and reports whether
// it was there.
func (l *leftOut) remove(key leftKey) bool {
	_, known := l.byKey[key]
	delete(l.byKey, key)
	return known
}

func (l *leftOut) count() int { return len(l.byKey) + l.uncounted }

// example is what is wrong with one of them, the same one for as long as it is
// there.
func (l *leftOut) example() (of unfitReason) {
	var first leftKey
	for key, w := range l.byKey {
		if of.why == "" || key < first {
			first, of = key, w
		}
	}
	return of
}

// leftOutNoteLocked says in words what of the scope is left out, "" when nothing is.
// i.mu must be held.
func (i *informer) leftOutNoteLocked() string {
	n := i.leftOutCountLocked()
	if n == 0 {
		return ""
	}
	objects := " objects are"
	if n == 1 {
		objects = " object is"
	}
	return strconv.Itoa(n) + objects + " left out: " + i.leftOutExampleLocked().why
}

func (i *informer) leftOutExampleLocked() (of unfitReason) {
	for _, p := range i.listWatches {
		if of = p.leftOut.example(); of.why != "" {
			break
		}
	}
	return of
}

func (i *informer) leftOutCountLocked() (n int) {
	for _, p := range i.listWatches {
		n += p.leftOut.count()
	}
	return n
}

// publishLeftOutLocked publishes with the next commit what is left out, if that has
// changed. i.mu must be held.
func (i *informer) publishLeftOutLocked() {
	i.countLeftOutLocked()
	if i.scope.Status() != i.statusLocked() {
		i.scope.SetStatus(i.statusLocked())
	}
}

// countLeftOutLocked takes note of what is left out, and logs that something is. i.mu
// must be held.
func (i *informer) countLeftOutLocked() {
	n := i.leftOutCountLocked()
	i.metrics.leftOut.Set(float64(n))
	if n > 0 && i.leftOutReported == 0 {
		of := i.leftOutExampleLocked()
		i.log().Warn("skipping objects that no API server would admit", "objects", n, "object", of.object, "reason", of.why)
	}
	i.leftOutReported = n
}

// whyUnfit returns why an object cannot be kept, "" when it can: what the decoder
// has found, or a namespace that the listWatch does not cover.
func (p *listWatch) whyUnfit(rec *aggregate.Record, found error) string {
	var why string
	switch res := p.informer.res(); {
	case found != nil:
		why = found.Error()
	case res.Namespaced && rec.Namespace == "":
		why = "it has no namespace"
	case !res.Namespaced && rec.Namespace != "":
		why = "it has a namespace, but its kind is cluster-scoped"
	case p.namespace != "" && rec.Namespace != p.namespace:
		why = "it is in another namespace than requested"
	default:
		return ""
	}
	return message.Clip(why)
}

// unfitObject carries an object that cannot be kept: its key where it may have
// been kept before, else one that no object has.
func (p *listWatch) unfitObject(rec *aggregate.Record, why string) *object {
	o := &object{rv: string([]byte(rec.ResourceVersion)), key: leftKeyFor(rec.Namespace, rec.Name)}
	o.unfit = unfitReason{why, message.Clip(fmt.Sprintf("%.63s/%.253s", rec.Namespace, rec.Name))}
	o.namespace, o.name = stagedKey(rec)
	return o
}

// stagedKey is the key of a record or, where no object may have it, one that no object has.
func stagedKey(rec *aggregate.Record) (namespace, name string) {
	if decode.Keyable(rec) {
		return cloneKey(rec)
	}
	return "", fmt.Sprintf("/%x", leftKeyFor(rec.Namespace, rec.Name))
}
