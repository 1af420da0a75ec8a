# METADATA
# title: Replicated apps have a PodDisruptionBudget
# description: |
#   Without a PodDisruptionBudget, draining nodes, for an upgrade for example, can
#   evict all replicas of a Deployment or StatefulSet at the same time. Workloads with
#   more than one replica are evaluated in each member separately; if the same app has
#   a PodDisruptionBudget of its name in other members, the violation says so. The
#   remedy creates a PodDisruptionBudget with the name of the app, with the
#   maxUnavailable that those other members agree on, or else the value of the
#   parameter; there is no remedy if the name is taken. The policy does not check what
#   a budget allows. Because other members are read, verdicts are Unknown, and nothing
#   is corrected, while the PodDisruptionBudgets of any member are incomplete; set the
#   parameter elsewhere to false to avoid that.
# custom:
#   severity: medium
#   kinds: ["Deployment.apps", "StatefulSet.apps"]
#   remedies:
#   - {action: apply, kind: PodDisruptionBudget.policy}
#   parameters:
#     type: object
#     properties:
#       elsewhere:
#         description: Whether to compare with the PodDisruptionBudgets of other members.
#         type: boolean
#         default: true
#       maxUnavailable:
#         description: maxUnavailable of the PodDisruptionBudget that the remedy creates.
#         type: integer
#         minimum: 1
#         default: 1
package federator.availability.no_disruption_budget

import data.federator.lib.members
import data.federator.lib.selector

violation contains finding if {
	unprotected
	not correctable
}

violation contains object.union(finding, {"remedy": {
	"action": "apply",
	"target": {"member": input.ref.member, "kind": "PodDisruptionBudget.policy", "namespace": input.ref.namespace, "name": input.ref.name},
	"object": {
		"apiVersion": "policy/v1",
		"kind": "PodDisruptionBudget",
		"metadata": {"namespace": input.ref.namespace, "name": input.ref.name},
		"spec": {"maxUnavailable": limit, "selector": input.object.spec.selector},
	},
}}) if {
	unprotected
	correctable
}

finding := {
	"msg": sprintf("no PodDisruptionBudget selects its %d replicas%s", [input.object.spec.replicas, wanted]),
	"details": {"elsewhere": object.keys(others)},
}

unprotected if {
	input.ref.kind in {"Deployment.apps", "StatefulSet.apps"}
	is_number(input.object.spec.replicas)
	input.object.spec.replicas > 1
	not protected
}

protected if {
	some budget in data.fleet.objects["PodDisruptionBudget.policy"][input.ref.member][input.ref.namespace]
	selector.matches(budget.spec.selector, labels)
}

default labels := {}

labels := input.object.spec.template.metadata.labels if is_object(input.object.spec.template.metadata.labels)

# others are the budgets of other members that select the evaluated workload.
others[member] := object.get(budget, ["spec", "maxUnavailable"], null) if {
	input.parameters.elsewhere
	some member, budget in data.fleet.by_name["PodDisruptionBudget.policy"][input.ref.namespace][input.ref.name]
	member != input.ref.member
	selector.matches(budget.spec.selector, labels)
}

default wanted := ""

wanted := sprintf(", unlike in %s", [members.few(object.keys(others))]) if count(others) > 0

# The budget has the selector of the app, which never selects all Pods.
correctable if {
	selector.matches(input.object.spec.selector, labels)
	not selector.matches(input.object.spec.selector, {})
	not data.fleet.by_name["PodDisruptionBudget.policy"][input.ref.namespace][input.ref.name][input.ref.member]
}

limit := min(agreed) if {
	agreed := {allowed | some allowed in others}
	count(agreed) == 1
	some allowed in agreed
	useful(allowed)
} else := input.parameters.maxUnavailable

useful(allowed) if {
	is_number(allowed)
	allowed > 0
}

useful(allowed) if {
	is_string(allowed)
	regex.match(`^[1-9][0-9]?%$`, allowed)
}
