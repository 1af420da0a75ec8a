# METADATA
# title: Objects have the required labels
# description: |
#   Labels identify the owner of an object and the app that it belongs to; cost
#   reports, alerts and selectors rely on them. An empty value counts as missing. The
#   labels of the object itself are evaluated, not those of its Pod template. If the
#   parameter has a default for a label, the remedy adds the label with that value; it
#   never changes an existing value. For owners of Namespaces see
#   federator.tenancy.namespace_owner.
# custom:
#   severity: low
#   kinds: ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "CronJob.batch", "Service"]
#   remedies:
#   - {action: patch, kind: Deployment.apps}
#   - {action: patch, kind: StatefulSet.apps}
#   - {action: patch, kind: DaemonSet.apps}
#   - {action: patch, kind: CronJob.batch}
#   - {action: patch, kind: Service}
#   parameters:
#     type: object
#     properties:
#       labels:
#         description: Labels that objects must have.
#         type: array
#         items:
#           type: object
#           required: [key]
#           properties:
#             key: {type: string, minLength: 1, maxLength: 317}
#             pattern:
#               description: Regular expression (RE2) that the complete value must match. If unset, any value is allowed.
#               type: string
#               format: regex
#             default:
#               description: Value that the remedy sets on objects without the label.
#               type: string
#               maxLength: 63
#             kinds:
#               description: Kinds that must have the label, such as Deployment.apps. Defaults to all kinds of this policy.
#               type: array
#               items: {type: string, enum: [Deployment.apps, StatefulSet.apps, DaemonSet.apps, CronJob.batch, Service]}
#         default: [{key: app.kubernetes.io/name}]
package federator.hygiene.required_labels

violation contains {
	"msg": sprintf("label %s is missing", [label.key]),
	"details": {"label": label.key},
} if {
	some label in wanted
	not value(label.key)
	not correctable(label)
}

violation contains {
	"msg": sprintf("label %s is missing", [label.key]),
	"details": {"label": label.key},
	"remedy": {"action": "patch", "patch": {"metadata": {"labels": {label.key: label["default"]}}}},
} if {
	some label in wanted
	not value(label.key)
	correctable(label)
}

violation contains {
	"msg": sprintf("label %s is %s, which does not match %s", [label.key, text, label.pattern]),
	"details": {"label": label.key, "value": text, "pattern": label.pattern},
} if {
	some label in wanted
	text := value(label.key)
	not fits(text, label)
}

wanted contains label if {
	some label in input.parameters.labels
	not label.kinds
}

wanted contains label if {
	some label in input.parameters.labels
	input.ref.kind in label.kinds
}

value(key) := text if {
	text := input.object.metadata.labels[key]
	is_string(text)
	text != ""
}

# A default that does not match the pattern would be set again and again.
correctable(label) if {
	label["default"] != ""
	fits(label["default"], label)
}

fits(_, label) if not label.pattern

fits(text, label) if regex.match(sprintf(`^(?:%s)$`, [label.pattern]), text)
