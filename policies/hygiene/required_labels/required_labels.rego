# METADATA
# title: Objects have the labels that are agreed on
# description: |
#   Labels say whose an object is and which app it belongs to: costs, alerts and
#   selectors rely on them. An empty value counts as missing. Judged are the labels
#   of the object itself, not those of its template. Where the parameter gives a
#   default, the remedy adds the label with that value; it never changes a value that
#   is there. Owners of Namespaces are judged by federator.tenancy.namespace_owner.
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
#         description: The labels that objects must have.
#         type: array
#         items:
#           type: object
#           required: [key]
#           properties:
#             key: {type: string, minLength: 1, maxLength: 317}
#             pattern:
#               description: A regular expression (RE2) that the whole value must match. Without one, any value will do.
#               type: string
#               format: regex
#             default:
#               description: The value that the remedy gives to objects without the label.
#               type: string
#               maxLength: 63
#             kinds:
#               description: The kinds that must have it, as Deployment.apps. Without them, all kinds of this policy.
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

# A default that the pattern refuses would be set again and again.
correctable(label) if {
	label["default"] != ""
	fits(label["default"], label)
}

fits(_, label) if not label.pattern

fits(text, label) if regex.match(sprintf(`^(?:%s)$`, [label.pattern]), text)
