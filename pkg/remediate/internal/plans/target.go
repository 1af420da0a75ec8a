package plans

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
)

// Target is one object that would be changed.
type Target struct {
	MemberUID  string // of the Cluster object
	Ref        policy.Ref
	APIVersion string // that it is written in
	UID        string // of the object, "" where it does not exist
	Verb       v1alpha1.Verb
	Remedy     v1alpha1.Digest // RemedyDigest

	Actions string // names of those that are rolled back, the newest first, each after a space; "" but of a rollback

	Irreversible string // why the change could not be rolled back, "" if it could
	Diff         string // what would change, for people; "" if not known
	DryRun       v1alpha1.DryRunAnswer
	Message      string // of the member, if it refused the dry run
}

// Key identifies what an approved target lets pass: the UID of the member, the object by name,
// the verb and the remedy, whatever the UID of the object is.
type Key [sha256.Size]byte

// Key returns what t lets pass if it is approved.
func (t *Target) Key() Key {
	var b []byte
	r := &t.Ref
	for _, f := range []string{"key", t.MemberUID, r.Member, string(r.Kind), r.Namespace, r.Name, string(t.Verb), string(t.Remedy)} {
		b = appendField(b, f)
	}
	return sha256.Sum256(b)
}

// appendField appends a field so that no two lists of fields give the same bytes.
func appendField(b []byte, field string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(field))), field...)
}

// Bytes that the fields of a target may have, and what is shown of a target.
const (
	maxMember    = 317 // <namespace>/<name>
	maxKind      = 317
	maxVersion   = 317 // <group>/<version>
	maxNamespace = 253
	maxName      = 253
	maxUID       = 128
	maxNote      = 256
	maxDiff      = 4 << 10
)

// MaxActions is how many Actions are rolled back of one target.
const MaxActions = 100

// ErrInvalid is returned for a target that no Plan may have.
var ErrInvalid = errors.New("the target cannot be planned")

// Validate returns why no Plan may have t, as ErrInvalid.
func (t *Target) Validate() error {
	for _, f := range []struct {
		name, value string
		required    bool
		max         int
	}{
		{"member", t.Ref.Member, true, maxMember},
		{"UID of the member", t.MemberUID, true, maxUID},
		{"kind", string(t.Ref.Kind), true, maxKind},
		{"API version", t.APIVersion, false, maxVersion},
		{"namespace", t.Ref.Namespace, false, maxNamespace},
		{"name", t.Ref.Name, true, maxName},
		{"UID", t.UID, false, maxUID},
	} {
		switch {
		case f.required && f.value == "":
			return fmt.Errorf("%s: %w: it has no %s", clip.Line(t.Ref.String(), maxNote), ErrInvalid, f.name)
		case len(f.value) > f.max:
			return fmt.Errorf("%s: %w: its %s has %d bytes, at most %d are allowed", clip.Line(t.Ref.String(), maxNote), ErrInvalid, f.name, len(f.value), f.max)
		case !utf8.ValidString(f.value):
			return fmt.Errorf("%s: %w: its %s is not UTF-8", clip.Line(t.Ref.String(), maxNote), ErrInvalid, f.name)
		}
	}
	return t.validateChange()
}

func (t *Target) validateChange() error {
	switch t.Verb {
	case v1alpha1.Apply, v1alpha1.Patch, v1alpha1.Delete:
	default:
		return fmt.Errorf("%s: %w: verb %q", clip.Line(t.Ref.String(), maxNote), ErrInvalid, clip.Line(string(t.Verb), maxNote))
	}
	switch t.DryRun {
	case "", v1alpha1.DryRunPassed, v1alpha1.DryRunNoOp, v1alpha1.DryRunRefused, v1alpha1.DryRunContended, v1alpha1.DryRunProtected,
		v1alpha1.DryRunManaged, v1alpha1.DryRunInvalid, v1alpha1.DryRunSuperseded, v1alpha1.DryRunUnreachable:
	default:
		return fmt.Errorf("%s: %w: answer %q to a dry run", clip.Line(t.Ref.String(), maxNote), ErrInvalid, clip.Line(string(t.DryRun), maxNote))
	}
	if n := len(strings.Fields(t.Actions)); n > MaxActions {
		return fmt.Errorf("%s: %w: %d Actions, at most %d are allowed", clip.Line(t.Ref.String(), maxNote), ErrInvalid, n, MaxActions)
	}
	if !isDigest(t.Remedy) {
		return fmt.Errorf("%s: %w: %q is no digest of a remedy", clip.Line(t.Ref.String(), maxNote), ErrInvalid, clip.Line(string(t.Remedy), maxNote))
	}
	return nil
}

func isDigest(d v1alpha1.Digest) bool {
	_, err := hex.DecodeString(string(d))
	return err == nil && len(d) == 2*sha256.Size && strings.ToLower(string(d)) == string(d)
}

// compare orders the targets of a Plan: those of one PlanGroup follow each other.
func compare(a, b *Target) int {
	return cmp.Or(strings.Compare(a.Ref.Member, b.Ref.Member), strings.Compare(a.MemberUID, b.MemberUID),
		strings.Compare(string(a.Ref.Kind), string(b.Ref.Kind)), strings.Compare(a.APIVersion, b.APIVersion), strings.Compare(string(a.Verb), string(b.Verb)),
		strings.Compare(a.Ref.Namespace, b.Ref.Namespace), strings.Compare(a.Ref.Name, b.Ref.Name))
}

// object is what one Plan has at most one target of.
type object struct {
	memberUID string
	ref       policy.Ref
}

// check returns why targets, in order, cannot be those of one Plan.
func check(targets []Target) error {
	seen := make(map[object]struct{}, len(targets))
	for i := range targets {
		t := &targets[i]
		if err := t.Validate(); err != nil {
			return err
		}
		seen[object{t.MemberUID, t.Ref}] = struct{}{}
		if len(seen) != i+1 {
			return fmt.Errorf("%s: %w: it is there twice", clip.Line(t.Ref.String(), maxNote), ErrInvalid)
		}
	}
	return nil
}

// digestTargets returns the digest of targets in order.
func digestTargets(targets []Target) v1alpha1.Digest {
	h := sha256.New()
	b := appendField(nil, "targets")
	b = binary.AppendUvarint(b, uint64(len(targets)))
	for i := range targets {
		t := &targets[i]
		r, lasting := &t.Ref, "reversible"
		if t.Irreversible != "" {
			lasting = "irreversible"
		}
		lasting += t.Actions // none: the digest is as it was before there were rollbacks
		for _, f := range [...]string{
			r.Member, t.MemberUID, string(r.Kind), t.APIVersion, string(t.Verb), r.Namespace, r.Name, t.UID, string(t.Remedy), lasting,
		} {
			b = appendField(b, f)
		}
		h.Write(b)
		b = b[:0]
	}
	h.Write(b)
	return v1alpha1.Digest(hex.EncodeToString(h.Sum(nil)))
}
