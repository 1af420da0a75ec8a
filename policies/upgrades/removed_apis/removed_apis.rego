# METADATA
# title: Members do not serve APIs that the next Kubernetes version removes
# description: |
#   A Kubernetes upgrade stops serving old API versions, and manifests, charts and
#   clients that still use them then fail. The policy reports the API versions that a
#   member serves now and the target version does not. Because the same objects are
#   available in either version, only audit logs and repositories show who uses the
#   old one; PodSecurityPolicies are removed together with their objects and are
#   therefore counted. The table covers removals in Kubernetes 1.16 to 1.36, according
#   to k8s.io/api and the Kubernetes deprecation guide; custom resources are not
#   included. Members whose version is unknown are not evaluated.
# custom:
#   severity: medium
#   subject: member
#   parameters:
#     type: object
#     properties:
#       target:
#         description: Version to upgrade to, such as 1.36. Defaults to the member's next minor version.
#         type: string
#         pattern: '^(1\.[0-9]{1,3})?$'
#         default: ""
#       ignored:
#         description: APIs that are not in use, such as policy/v1beta1.
#         type: array
#         items: {type: string, minLength: 1}
#         default: []
package federator.upgrades.removed_apis

import data.federator.lib.version

violation contains {
	"msg": sprintf("serves %s, of which Kubernetes 1.%d removes %s: %s", [row.api, row.removed, concat(", ", row.kinds), instead(row.use)]),
	"details": {"api": row.api, "removed": sprintf("1.%d", [row.removed]), "kinds": row.kinds, "use": row.use},
} if {
	some row in due
}

violation contains {
	"msg": sprintf("has %d PodSecurityPolicies, which Kubernetes 1.25 removes: use Pod Security admission", [count(names)]),
	"details": {"names": names},
} if {
	some row in due
	"PodSecurityPolicy" in row.kinds
	row.api == "policy/v1beta1"
	names := object.keys(data.fleet.objects["PodSecurityPolicy.policy"][input.member.name][""])
}

# due are the rows of the table for APIs that the member serves and the upgrade removes.
due contains row if {
	some row in table
	row.since <= own
	own < row.removed
	row.removed <= target
	row.api in data.fleet.members[input.member.name].apis
	not row.api in input.parameters.ignored
}

own := version.minor(data.fleet.members[input.member.name].version)

target := own + 1 if input.parameters.target == ""

target := version.minor(input.parameters.target) if input.parameters.target != ""

instead("") := "there is no other"

instead(use) := sprintf("use %s", [use]) if use != ""

# table has the kinds of APIs that Kubernetes has since a minor version, and that a later
# one has removed.
table := [
	{"api": "extensions/v1beta1", "since": 1, "removed": 16, "use": "apps/v1", "kinds": ["DaemonSet", "Deployment", "ReplicaSet"]},
	{"api": "extensions/v1beta1", "since": 3, "removed": 16, "use": "networking.k8s.io/v1", "kinds": ["NetworkPolicy"]},
	{"api": "extensions/v1beta1", "since": 3, "removed": 16, "use": "policy/v1beta1", "kinds": ["PodSecurityPolicy"]},
	{"api": "apps/v1beta1", "since": 5, "removed": 16, "use": "apps/v1", "kinds": ["ControllerRevision", "Deployment", "StatefulSet"]},
	{"api": "apps/v1beta2", "since": 8, "removed": 16, "use": "apps/v1", "kinds": ["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]},
	{"api": "admissionregistration.k8s.io/v1beta1", "since": 9, "removed": 22, "use": "admissionregistration.k8s.io/v1", "kinds": ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]},
	{"api": "apiextensions.k8s.io/v1beta1", "since": 7, "removed": 22, "use": "apiextensions.k8s.io/v1", "kinds": ["CustomResourceDefinition"]},
	{"api": "apiregistration.k8s.io/v1beta1", "since": 7, "removed": 22, "use": "apiregistration.k8s.io/v1", "kinds": ["APIService"]},
	{"api": "authentication.k8s.io/v1beta1", "since": 4, "removed": 22, "use": "authentication.k8s.io/v1", "kinds": ["TokenReview"]},
	{"api": "authorization.k8s.io/v1beta1", "since": 2, "removed": 22, "use": "authorization.k8s.io/v1", "kinds": ["LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"]},
	{"api": "certificates.k8s.io/v1beta1", "since": 4, "removed": 22, "use": "certificates.k8s.io/v1", "kinds": ["CertificateSigningRequest"]},
	{"api": "coordination.k8s.io/v1beta1", "since": 12, "removed": 22, "use": "coordination.k8s.io/v1", "kinds": ["Lease"]},
	{"api": "extensions/v1beta1", "since": 1, "removed": 22, "use": "networking.k8s.io/v1", "kinds": ["Ingress"]},
	{"api": "networking.k8s.io/v1beta1", "since": 14, "removed": 22, "use": "networking.k8s.io/v1", "kinds": ["Ingress", "IngressClass"]},
	{"api": "rbac.authorization.k8s.io/v1beta1", "since": 6, "removed": 22, "use": "rbac.authorization.k8s.io/v1", "kinds": ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]},
	{"api": "scheduling.k8s.io/v1beta1", "since": 11, "removed": 22, "use": "scheduling.k8s.io/v1", "kinds": ["PriorityClass"]},
	{"api": "storage.k8s.io/v1beta1", "since": 4, "removed": 22, "use": "storage.k8s.io/v1", "kinds": ["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"]},
	{"api": "storage.k8s.io/v1alpha1", "since": 9, "removed": 24, "use": "storage.k8s.io/v1", "kinds": ["VolumeAttachment"]},
	{"api": "storage.k8s.io/v1alpha1", "since": 19, "removed": 24, "use": "storage.k8s.io/v1beta1", "kinds": ["CSIStorageCapacity"]},
	{"api": "autoscaling/v2beta1", "since": 8, "removed": 25, "use": "autoscaling/v2", "kinds": ["HorizontalPodAutoscaler"]},
	{"api": "batch/v1beta1", "since": 8, "removed": 25, "use": "batch/v1", "kinds": ["CronJob"]},
	{"api": "discovery.k8s.io/v1beta1", "since": 17, "removed": 25, "use": "discovery.k8s.io/v1", "kinds": ["EndpointSlice"]},
	{"api": "events.k8s.io/v1beta1", "since": 8, "removed": 25, "use": "events.k8s.io/v1", "kinds": ["Event"]},
	{"api": "node.k8s.io/v1beta1", "since": 14, "removed": 25, "use": "node.k8s.io/v1", "kinds": ["RuntimeClass"]},
	{"api": "policy/v1beta1", "since": 5, "removed": 25, "use": "policy/v1", "kinds": ["PodDisruptionBudget"]},
	{"api": "policy/v1beta1", "since": 10, "removed": 25, "use": "", "kinds": ["PodSecurityPolicy"]},
	{"api": "autoscaling/v2beta2", "since": 12, "removed": 26, "use": "autoscaling/v2", "kinds": ["HorizontalPodAutoscaler"]},
	{"api": "flowcontrol.apiserver.k8s.io/v1beta1", "since": 20, "removed": 26, "use": "flowcontrol.apiserver.k8s.io/v1beta3", "kinds": ["FlowSchema", "PriorityLevelConfiguration"]},
	{"api": "storage.k8s.io/v1beta1", "since": 21, "removed": 27, "use": "storage.k8s.io/v1", "kinds": ["CSIStorageCapacity"]},
	{"api": "flowcontrol.apiserver.k8s.io/v1beta2", "since": 23, "removed": 29, "use": "flowcontrol.apiserver.k8s.io/v1", "kinds": ["FlowSchema", "PriorityLevelConfiguration"]},
	{"api": "admissionregistration.k8s.io/v1alpha1", "since": 26, "removed": 32, "use": "admissionregistration.k8s.io/v1", "kinds": ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]},
	{"api": "authentication.k8s.io/v1alpha1", "since": 26, "removed": 32, "use": "authentication.k8s.io/v1", "kinds": ["SelfSubjectReview"]},
	{"api": "flowcontrol.apiserver.k8s.io/v1beta3", "since": 26, "removed": 32, "use": "flowcontrol.apiserver.k8s.io/v1", "kinds": ["FlowSchema", "PriorityLevelConfiguration"]},
	{"api": "authentication.k8s.io/v1beta1", "since": 27, "removed": 33, "use": "authentication.k8s.io/v1", "kinds": ["SelfSubjectReview"]},
	{"api": "admissionregistration.k8s.io/v1beta1", "since": 28, "removed": 34, "use": "admissionregistration.k8s.io/v1", "kinds": ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]},
	{"api": "storage.k8s.io/v1alpha1", "since": 29, "removed": 35, "use": "storage.k8s.io/v1", "kinds": ["VolumeAttributesClass"]},
]
