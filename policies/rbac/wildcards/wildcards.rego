# METADATA
# title: Roles name what they allow
# description: |
#   A * in a role allows what nobody has thought of, custom resources of tomorrow
#   included. Roles that Kubernetes makes at its start are left alone unless asked
#   for, as are ClusterRoles that are put together of others, whose rules a controller
#   writes. Who has the role, and how bad that is, federator.rbac.cluster_admin_bindings
#   and the bindings say.
# custom:
#   severity: medium
#   kinds: ["Role.rbac.authorization.k8s.io", "ClusterRole.rbac.authorization.k8s.io"]
#   parameters:
#     type: object
#     properties:
#       fields:
#         description: The fields of rules in which no * may be.
#         type: array
#         items: {type: string, enum: [apiGroups, resources, verbs, nonResourceURLs]}
#         default: [apiGroups, resources, verbs, nonResourceURLs]
#       builtin:
#         description: Whether the roles that Kubernetes makes are judged, too.
#         type: boolean
#         default: false
package federator.rbac.wildcards

violation contains {
	"msg": sprintf("rules[%d].%s has %s", [i, field, wildcard]),
	"details": {"rule": i, "field": field},
} if {
	input.ref.kind in {"Role.rbac.authorization.k8s.io", "ClusterRole.rbac.authorization.k8s.io"}
	not put_together
	not left_alone
	some i, rule in input.object.rules
	some field in input.parameters.fields
	some wildcard in rule[field]
	is_wildcard(wildcard)
}

# */scale is the subresource of every resource.
is_wildcard(text) if text == "*"

is_wildcard(text) if {
	is_string(text)
	startswith(text, "*/")
}

put_together if is_object(input.object.aggregationRule)

# The label alone could be anyone's: the names are those that Kubernetes keeps.
left_alone if {
	not input.parameters.builtin
	input.object.metadata.labels["kubernetes.io/bootstrapping"] == "rbac-defaults"
	kept(input.ref.name)
}

kept(name) if name in {"admin", "cluster-admin", "edit", "view"}

kept(name) if startswith(name, "system:")
