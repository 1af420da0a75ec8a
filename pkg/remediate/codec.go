package remediate

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/objects"
	"federator.dev/federator/pkg/remediate/internal/values"
)

// Labels of Actions on the hub, for listing them; see LabelValue.
const (
	bindingLabel = "federator.dev/binding"
	memberLabel  = "federator.dev/member"
	// triedLabel is on Actions that were tried and never written.
	triedLabel = "federator.dev/tried"
)

// Limits of the CRD.
const (
	maxPatch     = 256 << 10 // bytes
	maxMessage   = 1024      // of a phase, and of a reason
	maxManager   = 128
	maxViolation = 4096
	maxSubject   = 1024

	maxAcknowledger = 253
	maxHaltID       = 64
)

// LabelValue returns the label value for the name of a policy or a member: the slash of a
// member's name becomes a dot. Names that do not fit are truncated, with a hash appended.
func LabelValue(name string) string {
	v := strings.Replace(name, "/", ".", 1)
	if v != "" && len(validation.IsValidLabelValue(v)) == 0 {
		return v
	}
	return dnsLabel(name) + "-" + objects.Hash([]byte(name))[:12]
}

// encodeAction returns the record of an action on the hub. Messages are truncated to the
// CRD's limits; a patch cannot be, so that one which is too large is an errInvalidIntent.
// The patch of a Secret is left out, and one with values of a ConfigMap that are withheld.
func encodeAction(a *Action) (*v1alpha1.Action, error) {
	t := a.Remedy.Target
	out := &v1alpha1.Action{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "Action"},
		ObjectMeta: metav1.ObjectMeta{Name: a.Name, Labels: map[string]string{
			bindingLabel: LabelValue(a.Binding), memberLabel: LabelValue(t.Member),
		}},
		Spec: v1alpha1.ActionSpec{
			Binding: a.Binding, Package: a.Package, Violation: clip.Text(a.Intent.Message, maxViolation),
			Origin:   v1alpha1.Origin{Source: a.Source, Commit: v1alpha1.CommitHash(a.Commit), Path: a.Path},
			Version:  a.Version,
			Revision: strconv.FormatUint(uint64(a.Revision), 10), Subject: encodeSubject(a),
			Target: v1alpha1.Target{
				Member: t.Member, MemberUID: a.MemberUID, APIVersion: a.APIVersion, Kind: v1alpha1.Kind(t.Kind), Namespace: t.Namespace, Name: t.Name,
				UID: a.UID, ResourceVersion: a.ResourceVersion,
			},
			Verb:  v1alpha1.Verb(a.Remedy.Action),
			Force: a.Force, ActAs: a.ActAs, BeforeHash: v1alpha1.Digest(a.BeforeHash), AfterHash: v1alpha1.Digest(a.AfterHash), ChangedHash: v1alpha1.Digest(a.ChangedHash),
			Reason: clip.Text(a.Reason, maxMessage), RollbackOf: a.RollbackOf,
			Generation: v1alpha1.RolloutGeneration(a.Generation), Wave: a.Wave, TraceID: v1alpha1.TraceID(a.TraceID), AuditID: a.AuditID,
		},
	}
	if a.tried {
		out.Labels[triedLabel] = "true"
	}
	if err := encodePatch(&out.Spec, a); err != nil {
		return nil, err
	}
	if a.InverseVerb != "" || a.Irreversible != "" {
		if err := checkRecordable("the inverse", a.Inverse); err != nil {
			return nil, err
		}
		out.Inverse = &v1alpha1.Inverse{
			Verb: v1alpha1.Verb(a.InverseVerb), Patch: v1alpha1.JSONText(a.Inverse), Irreversible: clip.Text(a.Irreversible, maxMessage),
		}
	}
	out.Status = encodeStatus(a)
	return out, nil
}

// bytesAnnotation is how many bytes an Action takes on the hub, for those who list metadata only.
const bytesAnnotation = "federator.dev/bytes"

// Bytes of an Action.
const (
	addedBytes   = 4 << 10 // of its status, and of what the API server adds: 3 KiB with the longest texts
	unknownBytes = 1 << 20 // of one that does not say; more than any has
)

// encodeRecord returns an Action as it is sent to the hub, and how many bytes it takes there.
func encodeRecord(record *v1alpha1.Action) (body []byte, bytes int64, err error) {
	if body, err = json.Marshal(record); err != nil {
		return nil, 0, err
	}
	bytes = int64(len(body) + addedBytes)
	record.Annotations = map[string]string{bytesAnnotation: strconv.FormatInt(bytes, 10)}
	body, err = json.Marshal(record)
	return body, bytes, err
}

// bytesOf returns how many bytes an Action takes on the hub.
func bytesOf(in *v1alpha1.Action) int64 {
	n, err := strconv.ParseInt(in.Annotations[bytesAnnotation], 10, 64)
	if err != nil || n < addedBytes {
		return unknownBytes
	}
	return n
}

func encodePatch(spec *v1alpha1.ActionSpec, a *Action) error {
	kind := a.Remedy.Target.Kind
	spec.ValuesKept = values.IsSensitive(kind) && !values.IsSecret(kind) && !a.withheld
	var text json.RawMessage
	switch a.Remedy.Action {
	case "apply":
		text = a.Remedy.Object
	case "patch":
		text = a.Remedy.Patch
		if spec.PatchType = v1alpha1.MergePatch; values.IsJSONPatch(text) {
			spec.PatchType = v1alpha1.JSONPatch
		}
	case "delete":
		spec.PropagationPolicy = metav1.DeletionPropagation(a.Remedy.Propagation)
		return nil
	}
	spec.PatchHash = v1alpha1.Digest(objects.Hash(text))
	if values.IsSecret(kind) || a.withheld && values.Refuse(&a.Remedy) != "" {
		return nil
	}
	spec.Patch = v1alpha1.JSONText(text)
	return checkRecordable("the patch", text)
}

// checkRecordable returns why a patch cannot be recorded as it is, as errInvalidIntent.
func checkRecordable(what string, text []byte) error {
	switch {
	case len(text) > maxPatch:
		return fmt.Errorf("%w: %s has %d bytes, at most %d are recorded", errInvalidIntent, what, len(text), maxPatch)
	case !utf8.Valid(text):
		return fmt.Errorf("%w: %s is not UTF-8", errInvalidIntent, what)
	}
	return nil
}

// encodeSubject returns what was evaluated, "" where that is the target: a ref, a member,
// or the quoted key of a view.
func encodeSubject(a *Action) string {
	if a.Subject == (policy.Subject{Ref: a.Remedy.Target}) || a.Subject == (policy.Subject{}) {
		return ""
	}
	return clip.Text(a.Subject.String(), maxSubject)
}

func decodeSubject(text string, target policy.Ref) policy.Subject {
	if text == "" {
		return policy.Subject{Ref: target}
	}
	if key, err := strconv.Unquote(text); err == nil {
		return policy.Subject{Key: key}
	}
	member, rest, isRef := strings.Cut(text, " ")
	kind, path, _ := strings.Cut(rest, " ")
	if !isRef {
		return policy.Subject{Ref: policy.Ref{Member: member}}
	}
	namespace, name, _ := strings.Cut(path, "/")
	return policy.Subject{Ref: policy.Ref{Member: member, Kind: policy.Kind(kind), Namespace: namespace, Name: name}}
}

func encodeStatus(a *Action) v1alpha1.ActionStatus {
	s := v1alpha1.ActionStatus{
		Phase: a.Phase, Message: clip.Text(a.Message, maxMessage), Manager: clip.Text(a.Manager, maxManager),
		Attempts: int32(min(max(a.Attempts, 0), math.MaxInt32)), ResourceVersion: a.WrittenVersion, // Bounded.
		StartedAt: microTime(a.Started), EndedAt: microTime(a.Ended),
	}
	if by := a.Acknowledged; by != nil {
		s.AcknowledgedBy, s.AcknowledgedHalt = clip.Text(by.By, maxAcknowledger), clip.Text(by.Halt, maxHaltID)
		if !by.At.IsZero() {
			at := metav1.NewTime(by.At)
			s.AcknowledgedAt = &at
		}
	}
	return s
}

// decodeAcknowledgement returns the acknowledgement in a status, nil for none.
func decodeAcknowledgement(s *v1alpha1.ActionStatus) *Acknowledgement {
	if s.AcknowledgedBy == "" && s.AcknowledgedHalt == "" {
		return nil
	}
	by := &Acknowledgement{Halt: s.AcknowledgedHalt, By: s.AcknowledgedBy}
	if s.AcknowledgedAt != nil {
		by.At = s.AcknowledgedAt.Time
	}
	return by
}

func microTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	m := metav1.NewMicroTime(t.UTC().Truncate(time.Microsecond))
	return &m
}

func timeOf(m *metav1.MicroTime) time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.UTC()
}

// decodeAction returns the action of a record. One without a phase may have been written.
func decodeAction(in *v1alpha1.Action) *Action {
	s, target := &in.Spec, in.Spec.Target
	ref := policy.Ref{Member: target.Member, Kind: policy.Kind(target.Kind), Namespace: target.Namespace, Name: target.Name}
	a := &Action{
		Name: in.Name, recordVersion: in.ResourceVersion, recordUID: in.UID, recordBytes: bytesOf(in), created: in.CreationTimestamp.Time, tried: in.Labels[triedLabel] != "",
		Intent: Intent{
			Binding: s.Binding, Package: s.Package, Message: s.Violation,
			Source: s.Origin.Source, Commit: string(s.Origin.Commit), Path: s.Origin.Path,
			Version:   s.Version,
			Subject:   decodeSubject(s.Subject, ref),
			Remedy:    policy.Remedy{Action: string(s.Verb), Target: ref, Propagation: string(s.PropagationPolicy)},
			MemberUID: target.MemberUID, APIVersion: target.APIVersion, UID: target.UID, ResourceVersion: target.ResourceVersion,
			Force: s.Force, ActAs: s.ActAs,
			Reason: s.Reason, RollbackOf: s.RollbackOf, Generation: string(s.Generation), Wave: s.Wave, Acknowledged: decodeAcknowledgement(&in.Status),
		},
		Phase: decodePhase(in), Message: in.Status.Message, Manager: in.Status.Manager, Attempts: int(in.Status.Attempts),
		BeforeHash: string(s.BeforeHash), AfterHash: string(s.AfterHash), ChangedHash: string(s.ChangedHash), WrittenVersion: in.Status.ResourceVersion,
		TraceID: string(s.TraceID), AuditID: s.AuditID,
		Started: timeOf(in.Status.StartedAt), Ended: timeOf(in.Status.EndedAt),
	}
	revision, _ := strconv.ParseUint(s.Revision, 10, 64) // the CRD lets numbers in only
	a.Revision = policy.Revision(revision)
	if s.Patch != "" {
		if s.Verb == v1alpha1.Apply {
			a.Remedy.Object = json.RawMessage(s.Patch)
		} else {
			a.Remedy.Patch = json.RawMessage(s.Patch)
		}
	}
	if i := in.Inverse; i != nil {
		a.InverseVerb, a.Irreversible = string(i.Verb), i.Irreversible
		if i.Patch != "" {
			a.Inverse = json.RawMessage(i.Patch)
		}
	}
	return a
}

func decodePhase(in *v1alpha1.Action) v1alpha1.ActionPhase {
	if !in.Ended() {
		return v1alpha1.PhaseWriting
	}
	switch in.Status.Phase {
	case v1alpha1.PhaseSucceeded, v1alpha1.PhaseNoOp, v1alpha1.PhaseSuperseded, v1alpha1.PhaseContended,
		v1alpha1.PhaseProtected, v1alpha1.PhaseManaged, v1alpha1.PhaseFailed, v1alpha1.PhaseRolledBack:
		return in.Status.Phase
	}
	return v1alpha1.PhaseFailed // a final phase of a later version
}
