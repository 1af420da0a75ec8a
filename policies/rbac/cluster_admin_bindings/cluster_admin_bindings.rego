# METADATA
# title: cluster-admin is restricted, and unauthenticated users have no roles
# description: |
#   A subject with cluster-admin controls the member, or with a RoleBinding the
#   namespace; and a role bound to unauthenticated users is available to everyone who
#   can reach the API server. Only the names of roles are evaluated: add roles with
#   equivalent permissions to the parameter roles (see federator.rbac.wildcards).
# custom:
#   severity: critical
#   kinds: ["ClusterRoleBinding.rbac.authorization.k8s.io", "RoleBinding.rbac.authorization.k8s.io"]
#   parameters:
#     type: object
#     properties:
#       roles:
#         description: ClusterRoles that only the allowed subjects may have.
#         type: array
#         items: {type: string, minLength: 1}
#         default: [cluster-admin]
#       subjects:
#         description: Subjects that may have them. In names and namespaces * matches any text; without a namespace, all namespaces match.
#         type: array
#         items:
#           type: object
#           required: [kind, name]
#           properties:
#             kind: {type: string, enum: [User, Group, ServiceAccount]}
#             name: {type: string, pattern: "^[^][{}\\\\]+$"}
#             namespace: {type: string, pattern: "^[^][{}\\\\]+$"}
#         default:
#         - {kind: Group, name: "system:masters"}
#         - {kind: Group, name: "kubeadm:cluster-admins"}
#       strangers:
#         description: Users and groups of unauthenticated users.
#         type: array
#         items: {type: string, minLength: 1}
#         default: ["system:anonymous", "system:unauthenticated"]
#       publicRoles:
#         description: Roles that unauthenticated users may have. Defaults to those of Kubernetes and kubeadm.
#         type: array
#         items: {type: string, minLength: 1}
#         default: ["system:public-info-viewer", "kubeadm:bootstrap-signer-clusterinfo"]
package federator.rbac.cluster_admin_bindings

violation contains {
	"msg": sprintf("%s has %s%s", [called(subject), role, place]),
	"details": {"subject": called(subject), "role": role},
} if {
	input.object.roleRef.kind == "ClusterRole"
	role := input.object.roleRef.name
	role in input.parameters.roles
	some subject in input.object.subjects
	not allowed(subject)
	not stranger(subject)
}

violation contains {
	"msg": sprintf("%s, who may be anyone, has %s%s", [called(subject), role, place]),
	"details": {"subject": called(subject), "role": role},
} if {
	role := input.object.roleRef.name
	is_string(role)
	not role in input.parameters.publicRoles
	some subject in input.object.subjects
	stranger(subject)
}

place := "" if input.ref.kind == "ClusterRoleBinding.rbac.authorization.k8s.io"

place := sprintf(" in namespace %s", [input.ref.namespace]) if {
	input.ref.kind == "RoleBinding.rbac.authorization.k8s.io"
}

stranger(subject) if {
	subject.kind in {"User", "Group"}
	subject.name in input.parameters.strangers
}

allowed(subject) if {
	some entry in input.parameters.subjects
	entry.kind == subject.kind
	like(entry.name, subject.name)
	not entry.namespace
}

allowed(subject) if {
	some entry in input.parameters.subjects
	entry.kind == subject.kind
	like(entry.name, subject.name)
	like(entry.namespace, subject.namespace)
}

like(pattern, text) if {
	is_string(text)
	glob.match(pattern, null, text)
}

called(subject) := sprintf("%s %s/%s", [subject.kind, subject.namespace, subject.name]) if {
	subject.kind == "ServiceAccount"
	is_string(subject.namespace)
	is_string(subject.name)
} else := sprintf("%s %s", [subject.kind, subject.name]) if {
	is_string(subject.kind)
	is_string(subject.name)
} else := "an unnamed subject"
