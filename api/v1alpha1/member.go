package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Member is a cluster of the fleet that nothing else on the hub describes: one
// that Cluster API does not manage. Its name as a member is
// <namespace>/<name>, its labels are what FleetPolicies select it by, and the
// annotation federator.dev/freeze-until holds writes to it as on a Cluster.
// While it is being deleted it is not read; once it is gone its objects leave
// the fleet. One that is created again is another member.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=federator
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="ReadOnly",type=boolean,JSONPath=`.spec.readOnly`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Kubeconfig",type=string,priority=1,JSONPath=`.spec.kubeconfig.secret`
type Member struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is how the member is reached, and what is done to it.
	// +required
	Spec MemberSpec `json:"spec"`
}

// MemberList is a list of Members.
//
// +kubebuilder:object:root=true
type MemberList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Member `json:"items"`
}

// MemberSpec is how a member is reached, and what is done to it.
// +kubebuilder:validation:XValidation:rule="!(has(self.write) && has(self.readOnly) && self.readOnly)",message="write must not be set for a member that is read-only"
type MemberSpec struct {
	// kubeconfig is what the member is read with and, without write, written with.
	// +required
	Kubeconfig MemberKubeconfig `json:"kubeconfig"`

	// write is what the member is written with instead of kubeconfig.
	// +optional
	Write *MemberKubeconfig `json:"write,omitempty"`

	// paused holds writes to the member; it is read as any other.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// readOnly is set for a member that is never written to.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`
}

// MemberKubeconfig is where a kubeconfig is.
type MemberKubeconfig struct {
	// secret is the name of a Secret in the namespace of the Member, of type
	// federator.dev/kubeconfig, with the kubeconfig under the key value. A
	// kubeconfig of a hub must stand alone: without plugins, files, proxies,
	// impersonation or plain HTTP.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Secret string `json:"secret"`
}
