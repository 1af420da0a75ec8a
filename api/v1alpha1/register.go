package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/api"
)

// Resource names of the group, as used in URLs.
const (
	FleetPolicies = "fleetpolicies"
	PolicySources = "policysources"
	Actions       = "actions"
	Plans         = "plans"
	PlanParts     = "planparts"
	Approvals     = "approvals"
	Rollbacks     = "rollbacks"
	PolicyStates  = "policystates"
	Members       = "members"
	Notifications = "notifications"
)

// SchemeGroupVersion returns the group and version of the kinds.
func SchemeGroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: api.GroupName, Version: Version}
}

// Resource returns a resource of this group and version, such as FleetPolicies.
func Resource(name string) schema.GroupVersionResource {
	return SchemeGroupVersion().WithResource(name)
}

// AddToScheme registers the kinds with a scheme. It never fails; the error is for
// runtime.SchemeBuilder.
func AddToScheme(s *runtime.Scheme) error {
	gv := SchemeGroupVersion()
	s.AddKnownTypes(gv, &FleetPolicy{}, &FleetPolicyList{}, &PolicySource{}, &PolicySourceList{}, &Action{}, &ActionList{})
	s.AddKnownTypes(gv, &Plan{}, &PlanList{}, &PlanPart{}, &PlanPartList{}, &Approval{}, &ApprovalList{}, &Rollback{}, &RollbackList{})
	s.AddKnownTypes(gv, &PolicyState{}, &PolicyStateList{}, &Member{}, &MemberList{}, &Notification{}, &NotificationList{})
	metav1.AddToGroupVersion(s, gv)
	return nil
}
