# METADATA
# title: Roles do not use wildcards
# description: |
#   A wildcard in a role allows more than anyone has reviewed, including future custom
#   resources. Roles that Kubernetes creates at startup are not evaluated by default,
#   nor are aggregated ClusterRoles, whose rules a controller writes. For the subjects
#   of roles see federator.rbac.cluster_admin_bindings.
# custom:
#   severity: medium
#   kinds: ["Role.rbac.authorization.k8s.io", "ClusterRole.rbac.authorization.k8s.io"]
#   parameters:
#     type: object
#     properties:
#       fields:
#         description: Fields of rules that must not contain *.
#         type: array
#         items: {type: string, enum: [apiGroups, resources, verbs, nonResourceURLs]}
#         default: [apiGroups, resources, verbs, nonResourceURLs]
#       builtin:
#         description: Whether to evaluate the roles that Kubernetes creates, too.
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

# Anyone can set the label: the names are those that Kubernetes reserves.
left_alone if {
	not input.parameters.builtin
	input.object.metadata.labels["kubernetes.io/bootstrapping"] == "rbac-defaults"
	kept(input.ref.name)
}

kept(name) if name in {"admin", "cluster-admin", "edit", "view"}

kept(name) if startswith(name, "system:")
