package v1alpha1

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PlanPart is a part of the targets of a Plan, and owned by it. It is immutable,
// at most 512 KiB, and read and written by federator alone: it names objects of
// members, and shows what some of them contain.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Plan",type=string,JSONPath=`.spec.plan`
// +kubebuilder:printcolumn:name="Number",type=integer,JSONPath=`.spec.number`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.plan`
type PlanPart struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the part. It is immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable: a Plan is frozen"
	Spec PlanPartSpec `json:"spec"`
}

// PlanPartList is a list of PlanParts.
//
// +kubebuilder:object:root=true
type PlanPartList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []PlanPart `json:"items"`
}

// MaxPlanPartBytes is the size of a PlanPart, as JSON with all that surrounds and escapes
// spec.targets. That has room for 2000 targets with long names.
const MaxPlanPartBytes = 512 << 10

// PlanPartSpec is a part of the targets of a Plan. It is immutable.
type PlanPartSpec struct {
	// plan is the name of the Plan.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Plan string `json:"plan"`

	// number is the position of the part, from 1.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Number int32 `json:"number"`

	// targets are the targets of the part, as JSON: a list of groups by member,
	// kind and verb. They are text because the API server could not hold a list of
	// this size immutable.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=520192
	Targets string `json:"targets"`
}

// Groups decodes the targets of the part.
func (p *PlanPart) Groups() ([]PlanGroup, error) {
	var out []PlanGroup
	if err := json.Unmarshal([]byte(p.Spec.Targets), &out); err != nil {
		return nil, fmt.Errorf("planpart %q: spec.targets: %w", p.Name, err)
	}
	return out, nil
}

// PlanGroup are targets of one kind on one member that are changed in the same
// way.
type PlanGroup struct {
	// member is the name of the member, which is the <namespace>/<name> of its
	// Cluster object.
	Member string `json:"member"`

	// memberUID is the UID of the Cluster object: a Cluster that is created again
	// under the same name is another member.
	MemberUID string `json:"memberUID"`

	// apiVersion is the API version that the objects are written in.
	APIVersion string `json:"apiVersion"`

	// kind is the kind of the objects without a version, such as Deployment.apps.
	Kind string `json:"kind"`

	// verb is how the objects are changed: apply, patch or delete.
	Verb Verb `json:"verb"`

	// targets are the objects.
	Targets []PlannedTarget `json:"targets"`
}

// DryRunAnswer is the answer of a member to a server-side dry run.
type DryRunAnswer string

// Answers to dry runs.
const (
	DryRunPassed      DryRunAnswer = "Passed"      // the object would be changed
	DryRunNoOp        DryRunAnswer = "NoOp"        // the object would not be changed
	DryRunRefused     DryRunAnswer = "Refused"     // the member refuses the change
	DryRunContended   DryRunAnswer = "Contended"   // another field manager owns a field
	DryRunProtected   DryRunAnswer = "Protected"   // the object is protected: federator never writes it
	DryRunManaged     DryRunAnswer = "Managed"     // a GitOps controller manages the object
	DryRunInvalid     DryRunAnswer = "Invalid"     // the remedy cannot be carried out: no member is asked
	DryRunSuperseded  DryRunAnswer = "Superseded"  // the object has changed since it was evaluated
	DryRunUnreachable DryRunAnswer = "Unreachable" // the member did not answer, or may not be asked now
)

// PlannedTarget is an object that would be changed.
type PlannedTarget struct {
	// namespace is the namespace of the object. It is empty for a cluster-scoped
	// object.
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the object.
	Name string `json:"name"`

	// uid is the UID of the object. It is not set if the object does not exist.
	UID string `json:"uid,omitempty"`

	// remedy is the SHA-256 digest of the remedy: how the object would be changed,
	// whatever its resourceVersion is.
	Remedy Digest `json:"remedy"`

	// actions are the names of the Actions that are rolled back, the newest first, if
	// the Plan's purpose is Rollback. The remedy is the digest of all of them.
	Actions []string `json:"actions,omitempty"`

	// irreversible explains why the change could not be rolled back. Of a rollback
	// it explains what is not restored.
	Irreversible string `json:"irreversible,omitempty"`

	// diff is what would change, a line for each field. It is set for a sample of
	// the targets, at most 20 in a Plan, and contains no values of Secrets, nor of
	// ConfigMaps unless federator is configured to keep them.
	Diff string `json:"diff,omitempty"`

	// dryRun is the answer of the member to a server-side dry run, if the Plan's
	// purpose is DryRun.
	DryRun DryRunAnswer `json:"dryRun,omitempty"`

	// message is what the member said, or why it was not asked.
	Message string `json:"message,omitempty"`
}
