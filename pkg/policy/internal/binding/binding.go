// Package binding says where policies apply: bindings as they are written, their
// validation against the packages that they bind, and the compiled selection.
package binding

import (
	"errors"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/manifest"
	"federator.dev/federator/pkg/policy/internal/module"
)

// ErrInvalid is a binding that cannot be used as it is written.
var ErrInvalid = errors.New("invalid binding")

// Mode is what may be done about a binding's violations. The engine only reports it.
type Mode string

// The modes of a binding.
const (
	Observe Mode = "Observe"
	DryRun  Mode = "DryRun"
	Enforce Mode = "Enforce"
)

// Binding says where a policy applies, and with which parameters. Verdicts belong
// to bindings.
type Binding struct {
	Name       string         `json:"name"`
	Package    string         `json:"package"`
	Members    MemberSelector `json:"members,omitzero"` // whose subjects are evaluated
	Match      Match          `json:"match,omitzero"`
	Parameters map[string]any `json:"parameters,omitempty"`
	Mode       Mode           `json:"mode,omitempty"` // "" is Observe

	// Visibility selects the members that data.fleet shows to the policy.
	Visibility MemberSelector `json:"visibility,omitzero"`
	// Tolerate selects the members whose gaps leave verdicts Known; nil is none.
	Tolerate *MemberSelector `json:"tolerate,omitempty"`

	Exemptions []Exemption `json:"exemptions,omitempty"`

	// Constraint is the constraint of the set that the binding applies, <kind>/<name>: one of
	// Gatekeeper's, or a ValidatingAdmissionPolicyBinding. It gives the package, the
	// parameters and what else it matches.
	Constraint string `json:"constraint,omitempty"`

	// Version names what the verdicts are of; "" is the start of the package's digest. It does not
	// change them.
	Version string `json:"-"`
	// Next is the version that is to take this one's place; nil: none. Both are evaluated on all
	// members, and one is in effect.
	Next *Next `json:"-"`

	constraint *manifest.Constraint // found by Validate
	admission  *module.Admission    // that it applies, if it is a ValidatingAdmissionPolicyBinding
}

// Next is a version of a policy that is to take the place of another.
type Next struct {
	// Binding has the same name. Its package is of a candidate: Set.Candidate returns its name.
	Binding Binding
	// Members are those in which it has taken its place: any that one of these selects.
	Members []MemberSelector
	// Whole reports that it has everywhere, for keys of views as well.
	Whole bool
}

// IsSame reports whether two bindings give the same verdicts: modes, and where a constraint
// is in its file, make no difference, and nor does a version that is to take the place of one.
func (b *Binding) IsSame(other *Binding) bool {
	x, y := *b, *other
	x.Mode, y.Mode, x.constraint, y.constraint = "", "", nil, nil
	x.admission, y.admission = nil, nil // the package's fingerprint is of it
	x.Version, y.Version, x.Next, y.Next = "", "", nil, nil
	if !reflect.DeepEqual(x, y) || (b.constraint == nil) != (other.constraint == nil) {
		return false
	}
	c, d := b.constraint, other.constraint
	return c == nil || c.FleetInventory == d.FleetInventory && reflect.DeepEqual(c.Match, d.Match) && reflect.DeepEqual(c.ParamRef(), d.ParamRef())
}

// FleetInventory reports whether data.inventory is of all visible members.
func (b *Binding) FleetInventory() bool { return b.constraint != nil && b.constraint.FleetInventory }

// MemberSelector selects members by name and by the labels of their Clusters. The
// zero value selects all of them.
type MemberSelector struct {
	Names  []string              `json:"names,omitempty"` // <namespace>/<name>, patterns of path.Match
	Labels *metav1.LabelSelector `json:"labels,omitempty"`
}

// Match selects objects; an empty field selects everything. Patterns are those of
// path.Match. For a package about the keys of a view it selects the objects whose
// entries count; a package about members takes no Match.
type Match struct {
	Kinds      []aggregate.Kind      `json:"kinds,omitempty"`
	Namespaces []string              `json:"namespaces,omitempty"` // patterns; "" matches cluster-scoped objects
	Labels     *metav1.LabelSelector `json:"labels,omitempty"`
}

// Exemption says which subjects' violations are expected. They stay visible. Keys of a
// view are exempted by Names only; members have no namespace, and their labels are
// those of Members.
type Exemption struct {
	Members    MemberSelector        `json:"members,omitzero"`
	Namespaces []string              `json:"namespaces,omitempty"` // patterns
	Names      []string              `json:"names,omitempty"`      // patterns; of a view's key, the key
	Labels     *metav1.LabelSelector `json:"labels,omitempty"`     // of the object
	Reason     string                `json:"reason"`
	Expires    time.Time             `json:"expires,omitzero"` // see Binding.At
}

// At returns the binding without the exemptions that have expired at a time. The
// engine reads no clock for them: its caller calls At, and again when the next one
// expires.
func (b Binding) At(now time.Time) Binding {
	b.Exemptions = slices.DeleteFunc(slices.Clone(b.Exemptions), func(e Exemption) bool {
		return !e.Expires.IsZero() && !now.Before(e.Expires)
	})
	return b
}
