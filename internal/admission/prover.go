package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/charts"
	"federator.dev/federator/internal/clip"
)

// Names of the policies and of their bindings.
const (
	approvalsPolicy = "approvals." + api.GroupName
	authorsPolicy   = "fleetpolicies." + api.GroupName
	rollbacksPolicy = "rollbacks." + api.GroupName
)

// maxReason bounds what is said of the hub's answers.
const maxReason = 512

// falseName is the user in whose name a Prover tries to approve. Nobody can have it: names
// with this prefix are Kubernetes' own.
const falseName = "system:federator:false-name"

// Proof is whether something is proven, and what that rests on.
type Proof struct {
	Reason  string   // why it is not; "" if it is
	Objects []Object // sorted by kind and name; none if it is not proven
}

// Proven reports whether it is. What was not asked is not.
func (p Proof) Proven() bool { return p.Reason == "" && len(p.Objects) > 0 }

// Same reports whether two proofs rest on the same objects: nothing about them has changed.
func (p Proof) Same(q Proof) bool {
	return p.Proven() && q.Proven() && slices.Equal(p.Objects, q.Objects)
}

// Object is a policy or a binding on the hub.
type Object struct {
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
	Generation int64     `json:"generation"`
}

// Proofs are what a hub proves.
type Proofs struct {
	Approvals Proof // spec.by and spec.groups of an Approval are its creator's, who may approve
	Authors   Proof // annotation federator.dev/changed-by is who has changed the spec
	Rollbacks Proof // spec.by and spec.groups of a Rollback are its creator's, who may roll back
}

// nothing are the Proofs of a hub that proves nothing.
func nothing(why Proof) Proofs { return Proofs{Approvals: why, Authors: why, Rollbacks: why} }

// Prover asks a hub. It never changes it.
type Prover struct {
	client kubernetes.Interface
}

// NewProver returns a Prover. The client's user is federator's.
func NewProver(client kubernetes.Interface) *Prover { return &Prover{client: client} }

// Prove asks the hub what it proves now. An error says that the hub could not be asked:
// what was proven before may no longer be.
func (p *Prover) Prove(ctx context.Context) (Proofs, error) {
	if _, err := p.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, approvalsPolicy, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		why, err := unreadable("ValidatingAdmissionPolicy", approvalsPolicy, err) // whoever federator is
		return nothing(why), err
	}
	self, err := p.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return Proofs{}, fmt.Errorf("admission: who federator is on the hub: %w", err)
	}
	shipped, err := charts.Admission(self.Status.UserInfo.Username)
	if err != nil {
		return Proofs{}, err
	}
	var out Proofs
	if out.Approvals, err = p.compare(ctx, approvalsPolicy, shipped[approvalsPolicy]); err != nil {
		return Proofs{}, err
	}
	if out.Approvals.Proven() {
		why, err := p.denies(ctx, shipped[approvalsPolicy])
		if err != nil {
			return Proofs{}, err
		}
		if why != "" {
			out.Approvals = Proof{Reason: why}
		}
	}
	if !out.Approvals.Proven() {
		return nothing(out.Approvals), nil // the plugin may not be in force
	}
	if out.Authors, err = p.compare(ctx, authorsPolicy, shipped[authorsPolicy]); err != nil {
		return Proofs{}, err
	}
	if out.Rollbacks, err = p.compare(ctx, rollbacksPolicy, shipped[rollbacksPolicy]); err != nil {
		return Proofs{}, err
	}
	return out, nil
}

// compare compares a policy and its binding on the hub with the manifests.
func (p *Prover) compare(ctx context.Context, name, manifests string) (Proof, error) {
	wantPolicy, wantBinding, err := parse(manifests)
	if err != nil {
		return Proof{}, fmt.Errorf("admission: %s: %w", name, err)
	}
	client := p.client.AdmissionregistrationV1()
	policy, err := client.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return unreadable("ValidatingAdmissionPolicy", name, err)
	}
	binding, err := client.ValidatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return unreadable("ValidatingAdmissionPolicyBinding", name, err)
	}
	switch {
	case policy.DeletionTimestamp != nil || !equality.Semantic.DeepEqual(policy.Spec, wantPolicy.Spec):
		return differs("ValidatingAdmissionPolicy", name), nil
	case binding.DeletionTimestamp != nil || !equality.Semantic.DeepEqual(binding.Spec, wantBinding.Spec):
		return differs("ValidatingAdmissionPolicyBinding", name), nil
	}
	return Proof{Objects: []Object{
		{"ValidatingAdmissionPolicy", name, policy.UID, policy.Generation},
		{"ValidatingAdmissionPolicyBinding", name, binding.UID, binding.Generation},
	}}, nil
}

func differs(kind, name string) Proof {
	return Proof{Reason: fmt.Sprintf("%s %s on the hub is not the one that this version of federator comes with: upgrade the chart, or undo the change", kind, name)}
}

// unreadable is a Proof that an object is missing or must not be read, or an error.
func unreadable(kind, name string, err error) (Proof, error) {
	switch {
	case apierrors.IsNotFound(err):
		return Proof{Reason: fmt.Sprintf("%s %s does not exist on the hub: the chart creates it (admission.create)", kind, name)}, nil
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return Proof{Reason: clip.Text(fmt.Sprintf("%s %s cannot be read: %v", kind, name, err), maxReason)}, nil
	}
	return Proof{}, fmt.Errorf("admission: get %s %s: %w", kind, name, err)
}

// denies tries to create an Approval under a false name, as a dry run. It returns why the
// answer proves nothing, "" if it proves that names are checked.
func (p *Prover) denies(ctx context.Context, manifests string) (string, error) {
	policy, binding, err := parse(manifests)
	if err != nil {
		return "", fmt.Errorf("admission: %w", err)
	}
	trial := &v1alpha1.Approval{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: "Approval"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "federator-false-name-"},
		Spec: v1alpha1.ApprovalSpec{
			FleetPolicy: "federator-false-name", Halt: "federator-false-name", By: falseName, Expires: metav1.Unix(0, 0),
			Reason: "federator tries whether the hub checks names: this must be denied",
		},
	}
	body, err := json.Marshal(trial)
	if err != nil {
		return "", fmt.Errorf("admission: %w", err)
	}
	err = p.client.CoreV1().RESTClient().Post().AbsPath("/apis", api.GroupName, v1alpha1.Version, v1alpha1.Approvals).
		Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	denial := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", policy.Name, binding.Name, policy.Spec.Validations[0].Message)
	switch {
	case err == nil:
		return "the hub admits an Approval under a false name: its API server does not apply ValidatingAdmissionPolicy " + policy.Name, nil
	case apierrors.IsForbidden(err) && strings.HasSuffix(err.Error(), ": "+denial):
		return "", nil
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown, apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err), apierrors.IsTooManyRequests(err),
		apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return "", fmt.Errorf("admission: try an Approval under a false name: %w", err)
	}
	return clip.Text("whether the hub checks names is not known: an Approval under a false name is denied for another reason: "+err.Error(), maxReason), nil
}

// parse reads a policy and its binding.
func parse(manifests string) (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding, error) {
	first, second, _ := strings.Cut(manifests, "\n---\n")
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	if err := yaml.UnmarshalStrict([]byte(first), policy); err != nil {
		return nil, nil, fmt.Errorf("read the policy: %w", err)
	}
	if err := yaml.UnmarshalStrict([]byte(second), binding); err != nil {
		return nil, nil, fmt.Errorf("read the binding: %w", err)
	}
	return policy, binding, nil
}
