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
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Connected",type=boolean,JSONPath=`.status.connected`
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="ReadOnly",type=boolean,JSONPath=`.spec.readOnly`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Kubeconfig",type=string,priority=1,JSONPath=`.spec.kubeconfig.secret`
// +kubebuilder:printcolumn:name="Agent",type=string,priority=1,JSONPath=`.status.agentVersion`
// +kubebuilder:printcolumn:name="Contact",type=date,priority=1,JSONPath=`.status.lastContactTime`
// +kubebuilder:printcolumn:name="Expires",type=string,priority=1,JSONPath=`.status.certificateExpires`
type Member struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is how the member is reached, and what is done to it.
	// +required
	Spec MemberSpec `json:"spec"`

	// status is what federator knows of the member's agent. Members without one have none.
	// +optional
	Status MemberStatus `json:"status,omitzero"`
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
// +kubebuilder:validation:XValidation:rule="has(self.kubeconfig) != has(self.agent)",message="exactly one of kubeconfig and agent must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.write) || has(self.kubeconfig)",message="write may be set only with kubeconfig"
// +kubebuilder:validation:XValidation:rule="!(has(self.write) && has(self.readOnly) && self.readOnly)",message="write must not be set for a member that is read-only"
type MemberSpec struct {
	// kubeconfig is what the member is read with and, without write, written with.
	// +optional
	Kubeconfig *MemberKubeconfig `json:"kubeconfig,omitempty"`

	// agent is set for a member that federator does not reach: its agent
	// (federator agent) opens the connections, and has the credentials. It joins
	// with a token of federator agent token.
	// +optional
	Agent *MemberAgent `json:"agent,omitempty"`

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

// MemberAgent says that a member has an agent. There is nothing to set.
type MemberAgent struct{}

// MemberStatus is what federator knows of a member's agent.
type MemberStatus struct {
	// connected is whether the agent has a connection to federator.
	// +optional
	Connected *bool `json:"connected,omitempty"`

	// agentVersion is the version of the agent, as it says.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AgentVersion string `json:"agentVersion,omitempty"`

	// lastContactTime is when something last came from the agent, to within a
	// few minutes.
	// +optional
	LastContactTime *metav1.Time `json:"lastContactTime,omitempty"`

	// certificateExpires is when the certificate expires that the agent has
	// connected with. It renews it before.
	// +optional
	CertificateExpires *metav1.Time `json:"certificateExpires,omitempty"`

	// process is the federator process that the agent is, or was last, connected
	// to, of several the one that says so. It is not set for a moment after that
	// one has lost the agent, until another one claims it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Process string `json:"process,omitempty"`
}
