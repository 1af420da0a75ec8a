package clusterinformers

import (
	"fmt"
	"strconv"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/audit"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// leftOut are the objects of a listWatch that are not indexed because no API server
// would admit them, so that clients may fail on them. They make the scope Partial, so
// that no client takes them for absent, and audits judge them as what is held. The
// informer's mu guards it.
type leftOut struct {
	versions map[audit.Key]audit.Digest
	reasons  map[audit.Key]unfitReason // of some
	// unkept says that there were others for which the member has no budget. Neither what they are nor how
	// many is known until the next list, so that no audit proves the scope.
	unkept bool
}

// unfitReason is why an object is left out, and which one it is.
type unfitReason struct {
	why    string // contains nothing that the member wrote: it is shown to API clients
	object string // for operators
}

// maxReasons bounds the objects of a listWatch of which it is known why they are left out.
const maxReasons = 64

// leftOutBytes is what the member is charged for an object that is left out: for its key and version
// in maps, of which an audit has a copy.
const leftOutBytes = 128

// leftOutShare is how much of the member's budget a listWatch may use for what is left out: one part
// of so many. The rest is for what is held.
const leftOutShare = 16

// add takes note of an object that is left out. kept says that it may be known one by one.
func (l *leftOut) add(o *object, kept bool) {
	if !kept {
		l.unkept = true
		return
	}
	if l.versions == nil {
		l.versions, l.reasons = map[audit.Key]audit.Digest{}, map[audit.Key]unfitReason{}
	}
	l.versions[o.key] = o.digest
	if _, known := l.reasons[o.key]; known || len(l.reasons) < maxReasons {
		l.reasons[o.key] = o.unfit
	}
}

// remove takes an object out that has gone or is fit again, and reports whether
// it was there.
func (l *leftOut) remove(key audit.Key) bool {
	_, known := l.versions[key]
	delete(l.versions, key)
	delete(l.reasons, key)
	return known
}

// none reports whether nothing is left out.
func (l *leftOut) none() bool { return len(l.versions) == 0 && !l.unkept }

// leaveOutLocked takes note of an object that is left out, as far as the member has the budget. The
// informer's mu must be held.
func (p *listWatch) leaveOutLocked(o *object) {
	i := p.informer
	_, known := p.leftOut.versions[o.key]
	more := int64(len(p.leftOut.versions)+1) * leftOutBytes
	p.leftOut.add(o, known || more <= i.member.quota.Limits.Bytes/leftOutShare && i.member.quota.Charge(&i.usage, 0, leftOutBytes))
}

// setLeftOutLocked takes note of all that is left out of a list. The informer's mu must be held.
func (p *listWatch) setLeftOutLocked(all []*object) {
	i := p.informer
	i.member.quota.Charge(&i.usage, 0, -leftOutBytes*int64(len(p.leftOut.versions)))
	p.leftOut = leftOut{}
	for _, o := range all {
		if digest, twice := p.leftOut.versions[o.key]; twice && digest != o.digest {
			o.digest = audit.AnyVersion // as of objects that have no name
		}
		p.leaveOutLocked(o)
	}
}

// example is what is wrong with one of them, the same one for as long as it is
// there.
func (l *leftOut) example() (of unfitReason) {
	var first audit.Key
	for key, w := range l.reasons {
		if of.why == "" || key < first {
			first, of = key, w
		}
	}
	return of
}

// leftOutNoteLocked says in words what of the scope is left out, "" when nothing is.
// i.mu must be held.
func (i *informer) leftOutNoteLocked() string {
	n, more := i.leftOutCountLocked()
	number, objects := strconv.Itoa(n), " objects are"
	switch {
	case n == 0 && !more:
		return ""
	case n == 0:
		return "objects may be left out that the member has no budget to count"
	case more:
		number = "at least " + number
	}
	if n == 1 {
		objects = " object is"
	}
	return number + objects + " left out: " + i.leftOutExampleLocked().why
}

func (i *informer) leftOutExampleLocked() (of unfitReason) {
	for _, p := range i.listWatches {
		if of = p.leftOut.example(); of.why != "" {
			break
		}
	}
	return of
}

// leftOutCountLocked returns how many objects are known to be left out, and whether there may be more: it takes
// what is kept of an object to tell its next event from that of another. i.mu must be held.
func (i *informer) leftOutCountLocked() (n int, more bool) {
	for _, p := range i.listWatches {
		n, more = n+len(p.leftOut.versions), more || p.leftOut.unkept
	}
	return n, more
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
	n, more := i.leftOutCountLocked()
	i.metrics.leftOut.Set(float64(n))
	some := n > 0 || more
	if some && !i.leftOutReported {
		of := i.leftOutExampleLocked()
		i.log().Warn("skipping objects that no API server would admit", "objects", n, "more", more, "object", of.object, "reason", of.why)
	}
	i.leftOutReported = some
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
	o := &object{
		rv: string([]byte(rec.ResourceVersion)), key: audit.KeyOf(rec.Namespace, rec.Name), digest: audit.DigestOf(rec.UID, rec.ResourceVersion),
	}
	o.unfit = unfitReason{why, message.Clip(fmt.Sprintf("%.63s/%.253s", rec.Namespace, rec.Name))}
	o.namespace, o.name = stagedKey(rec)
	return o
}

// stagedKey is the key of a record or, where no object may have it, one that no object has.
func stagedKey(rec *aggregate.Record) (namespace, name string) {
	if decode.Keyable(rec) {
		return cloneKey(rec)
	}
	return "", fmt.Sprintf("/%x", audit.KeyOf(rec.Namespace, rec.Name))
}
