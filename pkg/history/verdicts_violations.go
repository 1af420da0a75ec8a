package history

import (
	"fmt"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"federator.dev/federator/pkg/policy"
)

// seenViolation is a violation of a subject.
type seenViolation struct {
	digest    uint64
	firstSeen int64
	shown     bool // it is among the violations of the verdict: a failure does not hide it
	content   uint64
	message   string
	exempt    string
}

// violationsOf returns the violations of a verdict in its state, those that a failure hides, too.
func violationsOf(s *policy.State, v *policy.Verdict) (out []seenViolation) {
	if s == nil || v == nil {
		return nil
	}
	for i := range v.Violations {
		x := &v.Violations[i]
		out = append(out, seenViolation{
			digest: x.Digest(), firstSeen: v.FirstSeen.Seconds(i), shown: true, message: x.Msg, exempt: x.Exempt,
			content: xxhash.Sum64String(string(x.Details) + "\x00" + x.Exempt),
		})
	}
	if v.State == policy.Error {
		for _, x := range s.SeenOf(v.Binding, v.Subject) {
			out = append(out, seenViolation{digest: x.Violation, firstSeen: x.At})
		}
	}
	return out
}

// found takes a violation that was not there before, or is recorded as open by the process before.
func (f *follower) found(s *policy.State, v *policy.Verdict, x seenViolation) {
	exempt, open := f.recalled(s, v, x)
	switch {
	case !open:
		f.violation(s, v, x, Opened)
	case x.shown && isExemption(exempt, x.exempt):
		f.changed(s, v, x, exempt)
	}
	if !x.shown {
		f.hide(s, v, x, exempt)
	}
}

// stays takes a violation that was there before, and still is.
func (f *follower) stays(s *policy.State, v *policy.Verdict, was, is seenViolation) {
	switch {
	case was.shown && is.shown:
		if was.content != is.content {
			f.changed(s, v, is, was.exempt)
		}
	case was.shown:
		f.hide(s, v, is, was.exempt)
	case is.shown:
		if exempt, known := f.unhide(s, v, is); known && isExemption(exempt, is.exempt) {
			f.changed(s, v, is, exempt)
		}
	}
}

// hide notes why a violation is exempt that a failure hides.
func (f *follower) hide(s *policy.State, v *policy.Verdict, x seenViolation, exempt string) {
	if f.hidden == nil {
		f.hidden = map[string]string{}
	}
	f.hidden[idOf(s, v, x)] = exempt
}

// unhide returns what hide has noted, and forgets it.
func (f *follower) unhide(s *policy.State, v *policy.Verdict, x seenViolation) (exempt string, known bool) {
	id := idOf(s, v, x)
	exempt, known = f.hidden[id]
	delete(f.hidden, id)
	return exempt, known
}

// isExemption reports whether a violation has become exempt, or has ceased to be.
func isExemption(before, after string) bool { return (before == "") != (after == "") }

// changed takes that the content of a violation differs, which was exempt for a reason before.
func (f *follower) changed(s *policy.State, v *policy.Verdict, x seenViolation, exempt string) {
	r := f.violationRecord(s, v, x, Changed)
	switch {
	case !isExemption(exempt, x.exempt):
	case x.exempt != "":
		r.Exemption = ExemptionBegan
	default:
		r.Exemption = ExemptionEnded
	}
	f.out = append(f.out, r)
}

// violation takes a transition of a violation.
func (f *follower) violation(s *policy.State, v *policy.Verdict, x seenViolation, transition string) {
	f.out = append(f.out, f.violationRecord(s, v, x, transition))
}

func (f *follower) violationRecord(s *policy.State, v *policy.Verdict, x seenViolation, transition string) Record {
	r := f.record(s, v, transition)
	r.violation, r.Violation, r.Exempt = x.digest, x.message, x.exempt
	if x.firstSeen != 0 {
		at := time.Unix(x.firstSeen, 0).UTC()
		r.FirstSeen = &at
	}
	if transition == Changed { // as often as its content does
		r.Key = join(r.key(), fmt.Sprintf("%016x", x.content))
	} else {
		r.Key = r.key()
	}
	return r
}

// identify identifies a violation of a subject over restarts.
func identify(r *Record) string {
	return strings.Join([]string{r.Policy, r.MemberUID, r.Member, string(r.Kind), r.Namespace, r.Name, r.Subject, fmt.Sprintf("%016x", r.violation)}, "\x00")
}

// idOf identifies a violation of a verdict as identify does.
func idOf(s *policy.State, v *policy.Verdict, x seenViolation) string {
	ref := v.Subject.Ref
	m, _ := s.Snapshot.Member(ref.Member)
	return identify(&Record{Policy: v.Binding, MemberUID: m.UID, Member: ref.Member, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Subject: v.Subject.Key, violation: x.digest})
}

// maxRecalled bounds how many records of a policy are looked through for those that are open.
const maxRecalled = 1_000_000

// recall looks up which violations of the policies of a state are recorded as open.
func (f *follower) recall(s *policy.State) error {
	if f.asked == nil {
		f.asked = map[string]bool{}
	}
	for b := range s.Bindings() {
		if f.asked[b.Name] {
			continue
		}
		f.asked[b.Name] = true
		found, n := map[string]bool{}, 0
		for r, err := range f.history.Read(Query{Policy: b.Name, Backward: true}) {
			if err != nil {
				return err
			}
			if n++; n == maxRecalled {
				break
			}
			if r.Type != Verdict || r.violation == 0 {
				continue
			}
			id := identify(&r)
			if found[id] {
				continue
			}
			if found[id] = true; r.Transition != Closed {
				r.Changes = nil
				if f.open[b.Name] == nil {
					f.open[b.Name] = map[string]opened{}
				}
				f.open[b.Name][id] = opened{record: r}
			}
		}
	}
	return nil
}

// recalled reports whether a violation was recorded as open by the process before, or was not found only while its verdict was Unknown; and why it
// was exempt then.
func (f *follower) recalled(s *policy.State, v *policy.Verdict, x seenViolation) (exempt string, is bool) {
	open := f.open[v.Binding]
	if len(open) == 0 && len(f.doubts.closed) == 0 {
		return "", false
	}
	id := idOf(s, v, x)
	if was, is := f.doubts.dispel(id); is {
		return was.record.Exempt, true
	}
	was, is := open[id]
	if is {
		was.still = true
		open[id] = was
	}
	return was.record.Exempt, is
}

// settle records which violations have closed while nothing ran, once all that their policy reads was read.
func (f *follower) settle() {
	if len(f.open) == 0 {
		return
	}
	bindings := map[string]bool{}
	for b := range f.state.Bindings() {
		bindings[b.Name] = true
	}
	for policy, open := range f.open {
		if bindings[policy] && !f.state.BindingSynced(policy) {
			continue
		}
		for id, was := range open {
			f.settleOne(open, id, &was)
		}
		if len(open) == 0 {
			delete(f.open, policy)
		}
	}
}

// settleOne records whether a violation of a policy has closed, unless its member is not known yet.
func (f *follower) settleOne(open map[string]opened, id string, was *opened) {
	r := was.record
	m, known := f.state.Snapshot.Member(r.Member)
	if r.Member != "" && !known {
		return
	}
	delete(open, id)
	if was.still || r.Member != "" && m.UID == r.MemberUID && !f.state.Judges(r.Member) {
		return
	}
	r.Time, r.Transition, r.Trace, r.Revision = f.now, Closed, "", f.state.Snapshot.Revision()
	r.Message, r.Exemption = "it was found closed after a restart", ""
	r.Key = r.key()
	f.out = append(f.out, r)
}
